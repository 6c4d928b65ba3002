//! The sections of the file, one module each. Every field's comment is its description in the schema.

mod admin;
mod cache;
mod limits;
mod model;
mod pool;
mod server;
mod shared;
mod tenant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use admin::Admin;
pub use cache::{Cache, CacheMode, CacheRules, CachedRoute, Prices};
pub use limits::Limits;
pub use model::{EngineModel, Model};
pub use pool::{
    Admission, Dns, Events, Health, Hook, Loadable, Patience, Pool, Recycling, Retries, Timeouts,
    Worker,
};
pub use server::Server;
pub use shared::Shared;
pub use tenant::{Key, Priority, Tenant};

use crate::secret::Secret;

/// Everything that can be said in `forespeak.toml`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Config {
    /// Where clients come in.
    pub server: Server,
    /// Where operators come in. Without this section they do not.
    pub admin: Option<Admin>,
    /// What the salts of tenants are made from, which keep their cached prefixes apart. Gateways in front of the same
    /// workers need the same. Without it, one is made up at every start, and the workers' caches are cold for us.
    pub salt_secret: Option<Secret>,
    /// Groups of equal workers.
    pub pools: Vec<Pool>,
    /// What clients may ask for, and who answers. A pool that no model names serves what its workers say they serve.
    pub models: Vec<Model>,
    /// Who may ask. Without any, everyone who reaches the address may.
    pub tenants: Vec<Tenant>,
    /// What every tenant may use that has no limits of its own.
    pub limits: Limits,
    /// Answers that are given again to whoever asks the same.
    pub cache: Cache,
    /// What gateways that stand side by side tell each other.
    pub shared: Shared,
}
