use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// What gateways that stand side by side tell each other: workers they find ill, what tenants have used of their
/// limits, where prompts went. None depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Shared {
    /// Through which Redis: `off`, or an address as in the section `cache`.
    pub store: String,
    /// The same, where the address holds a password.
    pub store_url: Option<Secret>,
    /// What messages are sealed with. The same for all gateways of a group; that of the section `cache` if left out.
    pub secret: Option<Secret>,
    /// Gateways of other groups are not heard. A group calls the same workers by the same addresses.
    pub group: String,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            store: Self::OFF.to_owned(),
            store_url: None,
            secret: None,
            group: "default".to_owned(),
        }
    }
}

impl Shared {
    /// Nothing is told and nothing heard.
    pub const OFF: &str = "off";

    /// Through which Redis, its password included; `None` if nothing is shared.
    pub fn store(&self) -> Option<&str> {
        let kept = self.store_url.as_ref().and_then(Secret::reveal);
        let store = kept.unwrap_or(&self.store);
        (store != Self::OFF).then_some(store)
    }
}
