use std::net::{Ipv4Addr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// Where operators come in: reload, workers, decisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Admin {
    /// The address, never that of the clients. Anything but loopback needs a key.
    pub listen: SocketAddr,
    /// Sent by operators as a bearer token.
    pub key: Option<Secret>,
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8081)),
            key: None,
        }
    }
}
