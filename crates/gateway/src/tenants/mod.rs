//! Who asks, and what each of them may do.
//!
//! ```text
//! key_hash    an API key as it is kept: its SHA-256, compared in constant time
//! key_file    keys from a file, for the simple case
//! salt        what keeps one tenant's cached prefixes apart from another's
//! tenant      one of them: models, priorities, limits
//! bucket      how much of a rate is used up
//! meter       what a tenant has used of its limits; the pass of a request that was let in
//! headers     the same, as OpenAI's clients are told
//! directory   all of them: a key -> its tenant
//! metrics     what each asks for and gets
//! ```
//!
//! Without tenants in the configuration there is one: `anonymous` at an open door, `default` behind keys.

mod bucket;
mod directory;
mod headers;
mod key_file;
mod key_hash;
mod meter;
mod metrics;
mod salt;
mod tenant;

pub use bucket::Allowance;
pub use directory::{Tenants, Unknown};
pub(crate) use headers::tell_allowances;
pub use key_file::read_key_file;
pub use key_hash::KeyHash;
pub use meter::{Allowances, Pass};
pub(crate) use metrics::TenantMetrics;
pub use salt::SaltSecret;
pub use tenant::{ANONYMOUS, CachePolicies, DEFAULT, Limits, Models, Tenant, TenantSpec};
