//! The names of a sequence's full blocks.

use std::sync::Arc;

use model::BLOCK_TOKENS;

use super::hash::BlockHash;

/// The hashes of a growing sequence's full blocks, each computed once.
#[derive(Debug)]
pub(crate) struct Chain {
    salt: Option<Arc<str>>,
    root: BlockHash,
    hashes: Vec<BlockHash>,
}

impl Chain {
    /// The chain of a sequence without tokens.
    pub(crate) fn new(salt: Option<Arc<str>>) -> Self {
        Self {
            root: BlockHash::root(salt.as_deref()),
            salt,
            hashes: Vec::new(),
        }
    }

    /// Names the blocks that became full; `tokens` is the whole sequence.
    pub(crate) fn extend(&mut self, tokens: &[u32]) {
        let named = self.hashes.len() * BLOCK_TOKENS;
        for block in tokens[named..].chunks_exact(BLOCK_TOKENS) {
            let parent = self.hashes.last().copied().unwrap_or(self.root);
            self.hashes.push(parent.child(block));
        }
    }

    /// Names of the full blocks.
    pub(crate) fn hashes(&self) -> &[BlockHash] {
        &self.hashes
    }

    /// What keeps it apart from chains of other tenants.
    pub(crate) fn salt(&self) -> Option<&str> {
        self.salt.as_deref()
    }

    /// The block before block `index`, `None` for the first.
    pub(super) fn parent(&self, index: usize) -> Option<BlockHash> {
        index.checked_sub(1).map(|before| self.hashes[before])
    }

    /// The salt, where an event has to tell it: with the chain's first block.
    pub(super) fn salt_at(&self, index: usize) -> Option<Arc<str>> {
        if index == 0 { self.salt.clone() } else { None }
    }
}
