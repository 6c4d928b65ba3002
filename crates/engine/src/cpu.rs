//! The executor that computes with this machine's processors.

use std::sync::Arc;

use model::{Batch, KvCache, KvShape, KvType, Logits, Model, ModelError, Workspace};

use crate::executor::{ExecuteError, Executor};

/// A model and its keys and values in main memory.
pub struct CpuExecutor {
    model: Arc<Model>,
    cache: KvCache,
    workspace: Workspace,
}

impl CpuExecutor {
    /// An executor with room for `blocks` KV blocks.
    pub fn new(model: Arc<Model>, blocks: usize, kv_type: KvType) -> Result<Self, ModelError> {
        Ok(Self {
            cache: model.new_cache(blocks, kv_type)?,
            model,
            workspace: Workspace::default(),
        })
    }

    /// The same with the memory of its first blocks taken, so that no step waits for it.
    #[must_use]
    pub fn with_committed(self, blocks: usize) -> Self {
        self.cache.commit(blocks);
        self
    }
}

impl Executor for CpuExecutor {
    fn execute(&mut self, batch: &Batch, logits: &mut Logits) -> Result<(), ExecuteError> {
        self.model
            .forward(batch, &mut self.cache, &mut self.workspace, logits)
            .map_err(|error| ExecuteError(error.to_string()))
    }

    fn block_bytes(&self) -> Option<usize> {
        Some(self.cache.shape().block_bytes())
    }

    fn export(&self, block: u32, out: &mut Vec<u8>) {
        self.cache.export(block, out);
    }

    fn import(&mut self, block: u32, bytes: &[u8]) -> Result<(), ExecuteError> {
        self.cache
            .import(block, bytes)
            .map_err(|error| ExecuteError(error.to_string()))
    }

    fn vocab_size(&self) -> usize {
        self.model.config().vocab_size
    }

    fn context_length(&self) -> usize {
        self.model.config().context_length
    }
}

/// How many KV blocks of this shape fit into `bytes` of memory.
pub fn blocks_for_memory(bytes: usize, shape: &KvShape) -> usize {
    bytes / shape.block_bytes().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_divided_into_whole_blocks() {
        let shape = KvShape {
            layers: 2,
            kv_heads: 4,
            head_dim: 64,
            kv_type: KvType::F16,
        };
        let block = shape.block_bytes();
        assert!(block >= 2 * 2 * 4 * 64 * 2 * model::BLOCK_TOKENS);
        assert_eq!(blocks_for_memory(10 * block + 1, &shape), 10);
        assert_eq!(blocks_for_memory(block - 1, &shape), 0);
    }
}
