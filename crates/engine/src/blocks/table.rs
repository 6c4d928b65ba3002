//! The blocks of one sequence.

use model::BLOCK_TOKENS;

/// The blocks that a sequence holds, in the order of its tokens. Only the pool fills and empties it.
#[derive(Debug, Default)]
pub(crate) struct BlockTable {
    pub(super) blocks: Vec<u32>,
}

impl BlockTable {
    /// Block numbers, as the executor wants them.
    pub(crate) fn as_slice(&self) -> &[u32] {
        &self.blocks
    }

    /// Number of blocks.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Number of tokens that have room.
    pub(crate) fn capacity(&self) -> usize {
        self.blocks.len() * BLOCK_TOKENS
    }
}
