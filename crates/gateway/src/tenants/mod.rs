//! Who asks, and what each of them may do.
//!
//! ```text
//! key_hash    an API key as it is kept: its SHA-256, compared in constant time
//! key_file    keys from a file, for the simple case
//! salt        what keeps one tenant's cached prefixes apart from another's
//! tenant      one of them: models, priorities, limits
//! directory   all of them: a key -> its tenant
//! ```
//!
//! Without tenants in the configuration there is one: `anonymous` at an open door, `default` behind keys.

mod directory;
mod key_file;
mod key_hash;
mod salt;
mod tenant;

pub use directory::{Tenants, Unknown};
pub use key_file::read_key_file;
pub use key_hash::KeyHash;
pub use salt::SaltSecret;
pub use tenant::{ANONYMOUS, DEFAULT, Limits, Models, Tenant, TenantSpec};
