use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::Time;

/// Where clients come in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Server {
    /// The address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// A file with one API key a line, all of them of the tenant `default`. For more, see `tenants`.
    pub api_key_file: Option<PathBuf>,
    /// Most connections at a time; more wait in the kernel's queue.
    pub max_connections: usize,
    /// How long a client may take to send the headers of a request, and to think between two.
    pub header_timeout: Time,
    /// How long running answers may take to finish after a stop.
    pub drain_timeout: Time,
    /// Threads that carry requests; 0 takes as many as there are cores, and one beside an embedded engine.
    pub threads: usize,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            api_key_file: None,
            max_connections: 16_384,
            header_timeout: Duration::from_secs(30).into(),
            drain_timeout: Duration::from_secs(30).into(),
            threads: 0,
        }
    }
}
