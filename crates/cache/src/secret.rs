//! The secret from which every key of the cache follows.
//!
//! Gateways that share a store share the secret: an entry that was written with another one is foreign and
//! counts as a miss. A cache in one process makes up its own.

use std::fmt;

/// What only the gateways know.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// The secret that gateways share, as text of any length.
    pub fn from_text(text: &str) -> Self {
        Self(blake3::derive_key(
            "forespeak cache v1 secret",
            text.as_bytes(),
        ))
    }

    /// One that nobody else knows.
    pub fn random() -> Self {
        let mut entropy = [0; 32];
        let (first, second) = entropy.split_at_mut(16);
        first.copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        second.copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        Self(blake3::derive_key("forespeak cache v1 random", &entropy))
    }

    /// One key per purpose, so that a hash made for one is worth nothing for another.
    pub(crate) fn keys(&self) -> Keys {
        let key = |purpose| blake3::derive_key(purpose, &self.0);
        Keys {
            digest: key("forespeak cache v1 digest of a body"),
            fingerprint: key("forespeak cache v1 fingerprint of a request"),
            seal: key("forespeak cache v1 seal of an entry"),
            scope: key("forespeak cache v1 scope of an invalidation"),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(…)")
    }
}

#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) digest: [u8; 32],
    pub(crate) fingerprint: [u8; 32],
    pub(crate) seal: [u8; 32],
    pub(crate) scope: [u8; 32],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_follow_from_the_text_and_are_apart() {
        let keys = Secret::from_text("a").keys();
        assert_eq!(keys.seal, Secret::from_text("a").keys().seal);
        assert_ne!(keys.seal, Secret::from_text("b").keys().seal);
        assert_ne!(keys.seal, keys.fingerprint);
        assert_ne!(Secret::random().keys().seal, Secret::random().keys().seal);
        assert_eq!(format!("{:?}", Secret::from_text("a")), "Secret(…)");
    }
}
