//! What operators ask, on a listener of its own.
//!
//! ```text
//! GET    /admin/workers                every pool and worker as it is now
//! POST   /admin/workers                adds one: {"url": "http://host:port", "pool": …}
//! DELETE /admin/workers/{name}         drains it and lets it go
//! POST   /admin/workers/{name}/drain   gives it nothing new
//! POST   /admin/workers/{name}/undrain takes it back
//! GET    /admin/decisions              where the last requests went, and why (?pool=…&limit=…)
//! GET    /admin/tenants                who asks, and what is left of their limits
//! GET    /admin/config                 the configuration in force, without its secrets
//! POST   /admin/reload                 reads the configuration again
//! GET    /admin/cache                  what the response cache holds and has done
//! POST   /admin/cache/invalidate       {"all": true}, {"tenant": …}, {"model": …} or {"tenant": …, "context": …}
//! GET    /admin/speculation            how the engine in this process speculates, and how that goes
//! POST   /admin/speculation            another way from the next step on: {"drafter": …, "law": …} or {"depth": …}
//! ```
//! Never on the clients' address, and on loopback unless there is a key. What a browser sends is refused where there
//! is none: a web page must not be able to reload a gateway by guessing its port.

mod cached;
mod guard;
mod routes;
mod server;
mod speculation;
mod workers;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use serde_json::Value;

pub use server::AdminServer;

use crate::gateway::Gateway;
use crate::placement::Pool;
use crate::tenants::KeyHash;

/// Where operators come in.
#[derive(Debug, Clone)]
pub struct AdminConfig {
    /// The address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// What they must know.
    pub key: Option<KeyHash>,
}

/// What only the whole program can do.
pub trait Operations: Send + Sync {
    /// All pools, those without a model included.
    fn pools(&self) -> Vec<Arc<Pool>>;

    /// The configuration in force, without its secrets.
    fn config(&self) -> Value;

    /// Reads the configuration again; says what changed, or why everything stayed as it was.
    fn reload(&self) -> Pin<Box<dyn Future<Output = Result<Vec<String>, String>> + Send + '_>>;
}

/// What all admin requests share.
#[derive(Clone)]
struct Desk {
    gateway: Arc<Gateway>,
    operations: Arc<dyn Operations>,
    key: Option<KeyHash>,
    /// Held by whoever changes a part of what is in force: two at once would undo each other.
    changing: Arc<Mutex<()>>,
}
