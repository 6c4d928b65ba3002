//! `forespeak.toml`: what can be said in it, and what is wrong with what was said.
//!
//! ```text
//! text ─► syntax ─► keys ─► values ─► secrets ─► checks across sections ─► Config
//!         (toml)   (known?) (serde)   (env, files)  (a pool that exists, …)
//! ```
//! Whatever is wrong is told at once, each with its line and what to write instead: nobody likes to mend a file
//! one error at a time. Keys are checked against the very schema that `forespeak check --schema` prints, so
//! neither can know a key that the other does not.
//!
//! The result is plain data. Secrets are named in the file, never written there, and never shown.
//!
//! ```
//! use forespeak_config::Config;
//!
//! let text = r#"
//!     [[pools]]
//!     name = "main"
//!     workers = [{ url = "http://10.0.0.1:8000" }]
//!     polcy = "fit"
//! "#;
//! let problems = Config::parse(text).unwrap_err();
//! assert_eq!(
//!     problems.to_string(),
//!     "forespeak.toml:5: there is no key \"polcy\" in pools; did you mean \"policy\"?"
//! );
//! ```

mod checks;
mod keys;
mod load;
mod nearest;
mod path;
mod problem;
mod schema;
mod secret;
mod sections;
mod time;

pub use load::{Context, MAX_FILE_BYTES};
pub use problem::{Problem, Problems};
pub use schema::schema;
pub use secret::Secret;
pub use sections::{
    Admin, Admission, Cache, CacheMode, CacheRules, CachedRoute, Config, Dns, EngineModel, Events,
    Health, Hook, Key, Limits, Loadable, Model, Patience, Pool, Prices, Priority, Recycling,
    Retries, Server, Shared, Tenant, Timeouts, Worker,
};
pub use time::Time;

/// A file to begin with: every section, the keys explained. What `forespeak check --example` prints.
pub const EXAMPLE: &str = include_str!("../forespeak.example.toml");
