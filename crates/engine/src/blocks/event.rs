//! What the cache tells the outside: which blocks can be reused, and which no longer.

use std::sync::Arc;
use std::time::SystemTime;

use super::hash::BlockHash;
use crate::store::Tier;

/// A change of the prefix cache, as vLLM's KV events describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvEvent {
    /// Consecutive blocks of one chain can now be reused.
    Stored {
        /// Their hashes, in order.
        hashes: Vec<BlockHash>,
        /// The block before the first one; `None` at the start of a chain.
        parent: Option<BlockHash>,
        /// Their tokens, `block_size` for each.
        tokens: Vec<u32>,
        /// Tokens in a block.
        block_size: usize,
        /// The salt of the chain, told only with its first block.
        cache_salt: Option<Arc<str>>,
    },
    /// These blocks were evicted.
    Removed {
        /// Their hashes.
        hashes: Vec<BlockHash>,
    },
    /// These blocks can be loaded from elsewhere.
    Kept {
        /// Their hashes.
        hashes: Vec<BlockHash>,
        /// From where.
        tier: Tier,
    },
    /// These blocks can no longer be loaded from there.
    Lost {
        /// Their hashes.
        hashes: Vec<BlockHash>,
        /// From where.
        tier: Tier,
    },
    /// All blocks that the executor holds were forgotten.
    Cleared,
}

/// The changes of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvEventBatch {
    /// When the step ended.
    pub at: SystemTime,
    /// In the order in which they happened.
    pub events: Vec<KvEvent>,
}
