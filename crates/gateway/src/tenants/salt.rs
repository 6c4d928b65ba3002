//! What keeps one tenant's cached prefixes apart from another's.
//!
//! A worker that caches prefixes answers sooner when somebody has asked the same before, and whoever has a
//! stopwatch learns what others asked. So every request goes on with a salt that only its tenant has, and equal
//! prompts of two tenants are different prompts to the cache. The salt must not be guessed (a client could ask
//! a worker directly with it) and must stay the same (or the cache is lost): a keyed hash of the tenant's name.

use std::fmt;
use std::sync::Arc;

const PURPOSE: &str = "forespeak 2026 cache salt of a tenant";

/// Hexadecimal digits of a salt: 128 bits.
const DIGITS: usize = 32;

/// What salts are made from. Gateways that share workers must share it, or they do not share the workers' caches.
#[derive(Clone)]
pub struct SaltSecret([u8; blake3::KEY_LEN]);

impl SaltSecret {
    /// From what the operator keeps.
    pub fn from_text(text: &str) -> Self {
        Self(blake3::derive_key(PURPOSE, text.as_bytes()))
    }

    /// One that lasts as long as the process: after a restart the workers' caches are cold for us.
    pub fn random() -> Self {
        let (a, b) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
        Self(blake3::derive_key(
            PURPOSE,
            &[a.into_bytes(), b.into_bytes()].concat(),
        ))
    }

    /// The salt of a tenant.
    pub(super) fn salt(&self, tenant: &str) -> Arc<str> {
        shorten(blake3::keyed_hash(&self.0, tenant.as_bytes()))
    }
}

/// The salt for a part of a tenant's requests that the tenant itself keeps apart from its others.
pub(super) fn salt_within(salt: &str, part: &str) -> Arc<str> {
    let key = blake3::derive_key(PURPOSE, salt.as_bytes());
    shorten(blake3::keyed_hash(&key, part.as_bytes()))
}

fn shorten(hash: blake3::Hash) -> Arc<str> {
    let mut digits = hash.to_hex().to_string();
    digits.truncate(DIGITS);
    digits.into()
}

impl fmt::Debug for SaltSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SaltSecret(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn salts_are_stable_and_apart() {
        let secret = SaltSecret::from_text("s");
        let salt = secret.salt("a");
        assert_eq!(salt, SaltSecret::from_text("s").salt("a"));
        assert_eq!(salt.len(), DIGITS);
        assert_ne!(salt, secret.salt("b"));
        assert_ne!(salt, SaltSecret::from_text("t").salt("a"));
        assert_ne!(
            SaltSecret::random().salt("a"),
            SaltSecret::random().salt("a")
        );
        assert_ne!(salt_within(&salt, "x"), salt_within(&salt, "y"));
        assert_ne!(salt_within(&salt, "x"), salt_within(&secret.salt("b"), "x"));
    }
}
