//! Names for prefixes: a chained hash per block of a prompt.
//!
//! The key of a block stands for *everything up to and including it*: `key = H(parent key, block)`, and the
//! parent of the first block is a [`Root`] made from the tenant's cache salt and the LoRA adapter. Two equal
//! keys therefore mean two equal prefixes of the same tenant, and nothing an index learns for one tenant can be
//! found by another.
//!
//! The hash is XXH3 with 64 bits. A 100,000-token prompt has 6,250 blocks: XXH3 names them in less than a tenth of
//! a millisecond, BLAKE3 takes about one (25 times as long for the hashing alone). We can afford the weaker hash
//! because a key never decides an answer: a collision sends a request to a worker that has less of it cached than
//! we thought, which costs time and nothing else. The seed is the caller's secret, so that nobody outside can
//! compute colliding keys at leisure.
//!
//! (The embedded engine's own block keys do decide answers, and are collision-resistant for that reason.)
//!
//! The keys are our own and not the engine's: engines change algorithm, seed and encoding between versions,
//! while the token ids in their events stay what they are.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use twox_hash::XxHash3_64;

/// How many tokens share one key unless configured otherwise: vLLM's own default block.
pub const DEFAULT_BLOCK_TOKENS: usize = 16;

/// How many bytes of text share one key where there is no tokenizer: about sixteen tokens of English.
pub const DEFAULT_TEXT_BLOCK_BYTES: usize = 64;

/// A larger block would make the index blind to most shared prefixes; it also bounds the scratch space.
pub const MAX_BLOCK_TOKENS: usize = 4096;

const PARENT_BYTES: usize = size_of::<u64>();

/// The name of a prompt's prefix up to the end of one block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct BlockKey(pub u64);

impl fmt::Debug for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The secret with which one gateway (or all that share an index) makes its keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeySeed(pub u64);

impl fmt::Debug for KeySeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySeed(secret)")
    }
}

/// Where a chain of keys begins: one per tenant salt and LoRA adapter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Root {
    seed: KeySeed,
    parent: BlockKey,
}

impl Root {
    /// The root for a tenant's cache salt and an adapter; the empty salt and no adapter are a root of their own.
    pub fn new(seed: KeySeed, salt: &str, lora: Option<&str>) -> Self {
        let mut bytes = Vec::with_capacity(salt.len() + 32);
        // Lengths in front, so that ("ab", "c") and ("a", "bc") stay apart.
        bytes.extend_from_slice(&(salt.len() as u64).to_le_bytes());
        bytes.extend_from_slice(salt.as_bytes());
        match lora {
            None => bytes.push(0),
            Some(name) => {
                bytes.push(1);
                bytes.extend_from_slice(name.as_bytes());
            }
        }
        let parent = BlockKey(XxHash3_64::oneshot_with_seed(seed.0, &bytes));
        Self { seed, parent }
    }

    /// The secret and the name of the root, for fingerprints of another kind.
    pub(crate) fn parts(self) -> (u64, u64) {
        (self.seed.0, self.parent.0)
    }
}

/// The keys of a growing sequence of tokens: only what is new is hashed.
///
/// ```
/// use forespeak_routing::keys::{KeySeed, Root, TokenChain};
///
/// let root = Root::new(KeySeed(7), "tenant-a", None);
/// let mut chat = TokenChain::new(root, 4);
/// chat.extend(&[1, 2, 3, 4, 5]);
/// assert_eq!(chat.keys().len(), 1); // the fifth token waits for its block to fill
///
/// let first = chat.keys()[0];
/// chat.extend(&[6, 7, 8]);
/// assert_eq!(chat.keys().len(), 2);
/// assert_eq!(chat.keys()[0], first);
///
/// let other = Root::new(KeySeed(7), "tenant-b", None);
/// let mut same_words = TokenChain::new(other, 4);
/// same_words.extend(&[1, 2, 3, 4]);
/// assert_ne!(same_words.keys()[0], first);
/// ```
///
/// A copy shares its keys with the original until one of them grows, so that remembering a long chat costs little.
#[derive(Clone)]
pub struct TokenChain {
    hasher: BlockHasher,
    block_tokens: usize,
    keys: Arc<Vec<BlockKey>>,
    tail: Vec<u32>,
}

impl TokenChain {
    /// An empty chain; a block size of 0 or beyond [`MAX_BLOCK_TOKENS`] is brought into range.
    pub fn new(root: Root, block_tokens: usize) -> Self {
        Self {
            hasher: BlockHasher::after(root),
            block_tokens: block_tokens.clamp(1, MAX_BLOCK_TOKENS),
            keys: Arc::default(),
            tail: Vec::new(),
        }
    }

    /// Appends tokens, naming every block they complete.
    pub fn extend(&mut self, tokens: &[u32]) {
        let missing = self.block_tokens - self.tail.len();
        let Some((head, rest)) = tokens.split_at_checked(missing) else {
            self.tail.extend_from_slice(tokens);
            return;
        };
        self.tail.extend_from_slice(head);
        let blocks = rest.chunks_exact(self.block_tokens);
        let keys = with_room(&mut self.keys, 1 + blocks.len());
        keys.push(self.hasher.push_tokens(&self.tail));
        self.tail.clear();
        self.tail.extend_from_slice(blocks.remainder());
        for block in blocks {
            keys.push(self.hasher.push_tokens(block));
        }
    }

    /// One key per full block, in order.
    pub fn keys(&self) -> &[BlockKey] {
        &self.keys
    }

    /// The keys alone, where nothing more is to come.
    pub fn into_keys(self) -> Arc<Vec<BlockKey>> {
        self.keys
    }

    /// What the chain has allocated, shared with others or not.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<BlockKey>() * self.keys.capacity()
            + size_of::<u32>() * self.tail.capacity()
            + self.hasher.scratch.capacity()
    }

    /// How many tokens the chain has taken in, those of the unfinished block included.
    pub fn tokens(&self) -> usize {
        self.keys.len() * self.block_tokens + self.tail.len()
    }
}

/// Keys to which so many can be added. Where others have them, too, it is a copy of just the size: most are kept as they are then.
fn with_room(keys: &mut Arc<Vec<BlockKey>>, more: usize) -> &mut Vec<BlockKey> {
    if Arc::get_mut(keys).is_none() {
        let mut own = Vec::with_capacity(keys.len() + more);
        own.extend_from_slice(keys);
        *keys = Arc::new(own);
    }
    let keys = Arc::make_mut(keys);
    keys.reserve(more);
    keys
}

/// The keys of a growing text, for models whose tokenizer we do not have.
#[derive(Clone)]
pub struct TextChain {
    hasher: BlockHasher,
    block_bytes: usize,
    keys: Vec<BlockKey>,
    tail: Vec<u8>,
}

impl TextChain {
    /// An empty chain over blocks of so many bytes; they may cut a character in two, which harms nobody.
    pub fn new(root: Root, block_bytes: usize) -> Self {
        Self {
            hasher: BlockHasher::after(root),
            block_bytes: block_bytes.clamp(1, MAX_BLOCK_TOKENS),
            keys: Vec::new(),
            tail: Vec::new(),
        }
    }

    /// Appends text, naming every block it completes.
    pub fn extend(&mut self, text: impl AsRef<[u8]>) {
        self.tail.extend_from_slice(text.as_ref());
        let full = self.tail.len() / self.block_bytes * self.block_bytes;
        self.keys.reserve(full / self.block_bytes);
        for block in self.tail[..full].chunks_exact(self.block_bytes) {
            self.keys.push(self.hasher.push_text(block));
        }
        self.tail.drain(..full);
    }

    /// One key per full block, in order.
    pub fn keys(&self) -> &[BlockKey] {
        &self.keys
    }

    /// The keys alone, where nothing more is to come.
    pub fn into_keys(self) -> Arc<Vec<BlockKey>> {
        Arc::new(self.keys)
    }
}

/// Makes one key after another; remembers only the last.
pub(crate) struct BlockHasher {
    seed: KeySeed,
    parent: BlockKey,
    scratch: Vec<u8>,
}

/// Copies are mostly made to be kept, for which they need no scratch space.
impl Clone for BlockHasher {
    fn clone(&self) -> Self {
        Self::resume(self.seed, self.parent)
    }
}

impl BlockHasher {
    pub(crate) fn after(root: Root) -> Self {
        Self {
            seed: root.seed,
            parent: root.parent,
            scratch: Vec::new(),
        }
    }

    /// Goes on from a block whose key is known.
    pub(crate) fn resume(seed: KeySeed, parent: BlockKey) -> Self {
        Self {
            seed,
            parent,
            scratch: Vec::new(),
        }
    }

    pub(crate) fn push_tokens(&mut self, block: &[u32]) -> BlockKey {
        let (bytes, _) = self.body(size_of_val(block)).as_chunks_mut();
        for (place, token) in bytes.iter_mut().zip(block) {
            *place = token.to_le_bytes();
        }
        self.finish(self.seed.0)
    }

    fn push_text(&mut self, block: &[u8]) -> BlockKey {
        self.body(block.len()).copy_from_slice(block);
        // Another seed, so that text can never be taken for token ids.
        self.finish(!self.seed.0)
    }

    /// Room for a block behind its parent's key. The scratch space keeps its size from block to block, so that
    /// filling it is a copy and not a growing vector: half the time of naming a prompt.
    fn body(&mut self, bytes: usize) -> &mut [u8] {
        self.scratch.resize(PARENT_BYTES + bytes, 0);
        let (parent, body) = self.scratch.split_at_mut(PARENT_BYTES);
        parent.copy_from_slice(&self.parent.0.to_le_bytes());
        body
    }

    fn finish(&mut self, seed: u64) -> BlockKey {
        self.parent = BlockKey(XxHash3_64::oneshot_with_seed(seed, &self.scratch));
        self.parent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEED: KeySeed = KeySeed(42);

    fn keys_of(root: Root, tokens: &[u32]) -> Vec<BlockKey> {
        let mut chain = TokenChain::new(root, 4);
        chain.extend(tokens);
        chain.keys().to_vec()
    }

    #[test]
    fn salt_adapter_and_seed_each_make_another_root() {
        let roots = [
            Root::new(SEED, "", None),
            Root::new(SEED, "a", None),
            Root::new(SEED, "", Some("a")),
            Root::new(SEED, "", Some("")),
            Root::new(SEED, "a", Some("a")),
            Root::new(KeySeed(43), "a", None),
        ];
        let keys: std::collections::HashSet<_> = roots
            .into_iter()
            .map(|root| keys_of(root, &[1, 2, 3, 4])[0])
            .collect();
        assert_eq!(keys.len(), roots.len());
    }

    #[test]
    fn text_and_tokens_with_equal_bytes_have_different_keys() {
        let root = Root::new(SEED, "", None);
        let mut text = TextChain::new(root, 16);
        text.extend("abcdefghijklmnop");
        let tokens: Vec<u32> = b"abcdefghijklmnop"
            .chunks_exact(4)
            .map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]))
            .collect();
        assert_ne!(text.keys()[0], keys_of(root, &tokens)[0]);
    }

    proptest! {
        #[test]
        fn keys_do_not_depend_on_how_the_tokens_arrive(
            tokens in proptest::collection::vec(any::<u32>(), 0..200),
            cuts in proptest::collection::vec(0usize..50, 0..10),
        ) {
            let root = Root::new(SEED, "t", None);
            let mut chain = TokenChain::new(root, 4);
            let mut rest = tokens.as_slice();
            for cut in cuts {
                let (now, later) = rest.split_at(cut.min(rest.len()));
                chain.extend(now);
                rest = later;
            }
            chain.extend(rest);
            prop_assert_eq!(chain.keys().to_vec(), keys_of(root, &tokens));
            prop_assert_eq!(chain.tokens(), tokens.len());
        }

        #[test]
        fn text_keys_do_not_depend_on_how_the_text_arrives(pieces in proptest::collection::vec(".{0,40}", 0..8)) {
            let root = Root::new(SEED, "t", None);
            let mut piecewise = TextChain::new(root, 16);
            pieces.iter().for_each(|piece| piecewise.extend(piece));
            let mut whole = TextChain::new(root, 16);
            whole.extend(pieces.concat());
            prop_assert_eq!(piecewise.keys(), whole.keys());
        }
    }
}
