//! What a block is called outside of the engine.
//!
//! ```text
//! identity = H(secret; model, quantisation, KV type, shape, instructions, format)
//! key      = hash of the identity, hash of the block's chain (its tenant's salt, all tokens up to it)
//! ```
//! Two engines that name a block alike would have computed it bit by bit alike.

use std::fmt;

use crate::blocks::BlockHash;

/// Raised whenever the same tokens would give other bytes: by the arithmetic or by the layout of a block.
const REVISION: u32 = 1;

const PURPOSE: &str = "forespeak 2026 kv blocks";

/// Everything besides a prompt that decides what its keys and values are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// What seals are made with.
    seal: [u8; blake3::KEY_LEN],
    /// What names begin with; tells nothing of the other.
    name: [u8; StoreKey::BYTES / 2],
}

impl Identity {
    /// From all that matters, each as text; `secret` keeps blocks of those out who do not know it.
    ///
    /// ```
    /// use forespeak_engine::store::Identity;
    /// let one = Identity::new("", &["model", "q8_0"]);
    /// assert_ne!(one, Identity::new("", &["modelq8_0", ""]));
    /// assert_ne!(one, Identity::new("secret", &["model", "q8_0"]));
    /// ```
    pub fn new(secret: &str, parts: &[&str]) -> Self {
        let key = blake3::derive_key(PURPOSE, secret.as_bytes());
        let mut hasher = blake3::Hasher::new_keyed(&key);
        hasher.update(&REVISION.to_le_bytes());
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let seal = *hasher.finalize().as_bytes();
        let mut name = [0; StoreKey::BYTES / 2];
        blake3::Hasher::new_keyed(&seal)
            .finalize_xof()
            .fill(&mut name);
        Self { seal, name }
    }

    /// The name of a block.
    pub fn key(&self, block: BlockHash) -> StoreKey {
        let mut name = [0; StoreKey::BYTES];
        let (first, second) = name.split_at_mut(StoreKey::BYTES / 2);
        first.copy_from_slice(&self.name[..]);
        second.copy_from_slice(&block.to_bytes());
        StoreKey(name)
    }

    pub(super) fn seal_key(&self) -> &[u8; blake3::KEY_LEN] {
        &self.seal
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Identity({:02x?})", self.name)
    }
}

/// The name of a block wherever it lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreKey([u8; Self::BYTES]);

impl StoreKey {
    /// Bytes of a name.
    pub const BYTES: usize = 32;

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// The other way round.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The block's name within the engine.
    pub(crate) fn block(&self) -> BlockHash {
        let mut hash = [0; StoreKey::BYTES / 2];
        hash.copy_from_slice(&self.0[StoreKey::BYTES / 2..]);
        BlockHash::from_bytes(hash)
    }
}

impl fmt::Display for StoreKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for StoreKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "StoreKey({self})")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::blocks::Chain;

    fn first_key(identity: &Identity, salt: Option<&str>, tokens: &[u32]) -> StoreKey {
        let mut chain = Chain::new(salt.map(Into::into));
        chain.extend(tokens);
        identity.key(chain.hashes()[0])
    }

    proptest! {
        #[test]
        fn another_salt_model_or_secret_is_another_name(
            tokens in prop::collection::vec(any::<u32>(), 16..=16),
            salts in prop::collection::hash_set(prop::option::of("[a-z]{0,6}"), 2..6),
            models in prop::collection::hash_set("[a-z0-9]{0,6}", 2..4),
            secrets in prop::collection::hash_set("[a-z]{0,4}", 2..4),
        ) {
            let mut names = std::collections::HashSet::new();
            for model in &models {
                for secret in &secrets {
                    let identity = Identity::new(secret, &[model, "f16"]);
                    for salt in &salts {
                        let key = first_key(&identity, salt.as_deref(), &tokens);
                        prop_assert!(names.insert(key));
                        prop_assert_eq!(identity.key(key.block()), key);
                    }
                }
            }
        }
    }
}
