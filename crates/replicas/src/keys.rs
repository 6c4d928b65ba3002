//! What gateways of one group have in common: a secret, from which names, seals and seeds follow.
//!
//! What lies in Redis says nothing to whoever reads it there (workers and tenants are keyed hashes), and what
//! somebody else put there is not believed.

use std::fmt;

/// Bytes of a seal.
pub(crate) const SEAL_BYTES: usize = 32;

/// A worker or a tenant, as gateways name it to each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub(crate) [u8; 16]);

impl fmt::Debug for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// The keys of a group.
#[derive(Clone)]
pub struct Keys {
    name: [u8; 32],
    seal: [u8; 32],
    seed: [u8; 32],
}

impl fmt::Debug for Keys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Keys(***)")
    }
}

impl Keys {
    /// Those of a group of gateways with one secret.
    pub fn new(secret: &str, group: &str) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("forespeak replicas v1 secret of a group");
        hasher.update(&(group.len() as u64).to_le_bytes());
        hasher.update(group.as_bytes());
        hasher.update(secret.as_bytes());
        let secret = *hasher.finalize().as_bytes();
        let key = |purpose| blake3::derive_key(purpose, &secret);
        Self {
            name: key("forespeak replicas v1 name of a worker or tenant"),
            seal: key("forespeak replicas v1 seal of a message"),
            seed: key("forespeak replicas v1 seed of a prefix index"),
        }
    }

    /// The name of a worker: equal for gateways that call it by the same address in the same pool.
    pub fn worker(&self, pool: &str, url: &str) -> Name {
        self.hash(b'w', &[pool, url])
    }

    /// The name of a tenant.
    pub fn tenant(&self, name: &str) -> Name {
        self.hash(b't', &[name])
    }

    /// The seed of a pool's prefix keys: gateways understand each other's prefixes only with the same one.
    pub fn seed(&self, pool: &str) -> u64 {
        let hash = blake3::keyed_hash(&self.seed, pool.as_bytes());
        let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    fn hash(&self, kind: u8, parts: &[&str]) -> Name {
        let mut hasher = blake3::Hasher::new_keyed(&self.name);
        hasher.update(&[kind]);
        for part in parts {
            // Lengths in front, so that ("ab", "c") and ("a", "bc") stay apart.
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let mut name = [0; 16];
        hasher.finalize_xof().fill(&mut name);
        Name(name)
    }

    /// Appends the seal of a message.
    pub(crate) fn seal(&self, mut message: Vec<u8>) -> Vec<u8> {
        let seal = blake3::keyed_hash(&self.seal, &message);
        message.extend_from_slice(seal.as_bytes());
        message
    }

    /// The message under a seal, if it is ours.
    pub(crate) fn unseal<'a>(&self, sealed: &'a [u8]) -> Option<&'a [u8]> {
        let (message, seal) = sealed.split_at_checked(sealed.len().checked_sub(SEAL_BYTES)?)?;
        let seal: [u8; SEAL_BYTES] = seal.try_into().ok()?;
        // `blake3::Hash` compares in constant time.
        (blake3::keyed_hash(&self.seal, message) == blake3::Hash::from_bytes(seal))
            .then_some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_agree_within_a_group_and_nowhere_else() {
        let keys = Keys::new("s", "g");
        assert_eq!(keys.tenant("t"), Keys::new("s", "g").tenant("t"));
        let others = [
            Keys::new("s", "h").tenant("t"),
            Keys::new("x", "g").tenant("t"),
            Keys::new("gs", "").tenant("t"),
            keys.tenant("u"),
            keys.worker("t", ""),
            keys.worker("", "t"),
        ];
        assert!(others.iter().all(|other| *other != keys.tenant("t")));
        assert_ne!(keys.worker("ab", "c"), keys.worker("a", "bc"));
        assert_ne!(keys.seed("p"), keys.seed("q"));
    }

    #[test]
    fn what_others_wrote_is_not_opened() {
        let keys = Keys::new("s", "g");
        let sealed = keys.seal(b"news".to_vec());
        assert_eq!(keys.unseal(&sealed), Some(&b"news"[..]));
        assert_eq!(Keys::new("s", "h").unseal(&sealed), None);
        for at in 0..sealed.len() {
            let mut bent = sealed.clone();
            bent[at] ^= 1;
            assert_eq!(keys.unseal(&bent), None);
        }
        assert_eq!(keys.unseal(b"short"), None);
    }
}
