//! The name of a block: a hash over everything before it, so that equal names mean equal contents.
//!
//! ```text
//! root  = H(salt)
//! block = H(parent, its 16 tokens)
//! ```
//! A collision would give one tenant the keys and values of another, and lookups are fed with text
//! that strangers choose; hence a cryptographic hash, cut to 128 bits.

use model::BLOCK_TOKENS;

/// Name of a full block of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockHash(u128);

impl BlockHash {
    /// What the first block of a chain has for a parent. Chains of different salts never meet.
    pub(crate) fn root(salt: Option<&str>) -> Self {
        let mut hasher = blake3::Hasher::new();
        match salt {
            None => hasher.update(b"root"),
            Some(salt) => hasher.update(b"salt").update(salt.as_bytes()),
        };
        Self::truncate(&hasher)
    }

    /// The block that follows `self` and holds `tokens`.
    pub(crate) fn child(self, tokens: &[u32]) -> Self {
        debug_assert_eq!(tokens.len(), BLOCK_TOKENS);
        let mut bytes = [0; 4 * BLOCK_TOKENS];
        for (chunk, token) in bytes.chunks_exact_mut(4).zip(tokens) {
            chunk.copy_from_slice(&token.to_le_bytes());
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0.to_le_bytes()).update(&bytes);
        Self::truncate(&hasher)
    }

    fn truncate(hasher: &blake3::Hasher) -> Self {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Self(u128::from_be_bytes(bytes))
    }

    /// All of it, for names outside of the engine.
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The other way round.
    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// The last eight bytes as a big-endian number: vLLM's way to name a block in an event.
    pub fn as_u64(self) -> u64 {
        self.0 as u64
    }
}

impl std::fmt::Debug for BlockHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockHash({:032x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn salts_and_parents_separate_equal_tokens() {
        let tokens: Vec<u32> = (0..BLOCK_TOKENS as u32).collect();
        let plain = BlockHash::root(None).child(&tokens);
        let empty = BlockHash::root(Some("")).child(&tokens);
        let salted = BlockHash::root(Some("a")).child(&tokens);
        let deeper = plain.child(&tokens);
        let all = [plain, empty, salted, deeper];
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b));
        }
        assert_eq!(plain, BlockHash::root(None).child(&tokens));
    }
}
