//! A worker's KV cache: blocks, who uses them, and what they still hold after use.
//!
//! As vLLM does it: blocks that nobody uses stay findable under their hash until they are needed, the longest
//! unused first; a request gives its blocks back tail first, so that of one prompt the head survives longest.

use std::collections::HashMap;

/// A place in the cache.
pub type BlockId = u32;

const NONE: BlockId = BlockId::MAX;

#[derive(Clone, Copy)]
struct Block {
    hash: Option<u64>,
    users: u32,
    previous: BlockId,
    next: BlockId,
}

/// A finite cache of blocks with reuse by hash.
pub struct KvCache {
    blocks: Vec<Block>,
    by_hash: HashMap<u64, BlockId>,
    /// Unused blocks, the longest unused first: a linked list through `blocks`.
    oldest: BlockId,
    newest: BlockId,
    unused: usize,
    evictions: u64,
}

impl KvCache {
    /// An empty cache of so many blocks.
    pub fn new(blocks: u32) -> Self {
        let mut cache = Self {
            blocks: vec![
                Block {
                    hash: None,
                    users: 0,
                    previous: NONE,
                    next: NONE
                };
                blocks as usize
            ],
            by_hash: HashMap::new(),
            oldest: NONE,
            newest: NONE,
            unused: 0,
            evictions: 0,
        };
        for id in 0..blocks {
            cache.append_unused(id);
        }
        cache
    }

    /// How many leading blocks are cached.
    pub fn cached(&self, hashes: &[u64]) -> usize {
        hashes
            .iter()
            .take_while(|hash| self.by_hash.contains_key(hash))
            .count()
    }

    /// How many of these cached blocks nobody uses: taking them shrinks what is free.
    pub fn idle_among(&self, hashes: &[u64]) -> usize {
        hashes
            .iter()
            .filter_map(|hash| self.by_hash.get(hash))
            .filter(|id| self.blocks[**id as usize].users == 0)
            .count()
    }

    /// Takes a cached block into use.
    pub fn reuse(&mut self, hash: u64) -> Option<BlockId> {
        let id = *self.by_hash.get(&hash)?;
        if self.blocks[id as usize].users == 0 {
            self.unlink(id);
        }
        self.blocks[id as usize].users += 1;
        Some(id)
    }

    /// Takes a block into use for new tokens, evicting what it held; `evicted` gets its hash.
    pub fn allocate(&mut self, evicted: &mut Vec<u64>) -> Option<BlockId> {
        let id = self.oldest;
        if id == NONE {
            return None;
        }
        self.unlink(id);
        let block = &mut self.blocks[id as usize];
        block.users = 1;
        if let Some(hash) = block.hash.take() {
            self.by_hash.remove(&hash);
            self.evictions += 1;
            evicted.push(hash);
        }
        Some(id)
    }

    /// Names a full block, so that others find it. `false` if another block already has that name.
    pub fn name(&mut self, id: BlockId, hash: u64) -> bool {
        if self.by_hash.contains_key(&hash) {
            return false;
        }
        self.by_hash.insert(hash, id);
        self.blocks[id as usize].hash = Some(hash);
        true
    }

    /// Gives a request's blocks back, tail first.
    pub fn release(&mut self, blocks: &[BlockId]) {
        for id in blocks.iter().rev() {
            let block = &mut self.blocks[*id as usize];
            block.users -= 1;
            if block.users == 0 {
                self.append_unused(*id);
            }
        }
    }

    /// Blocks nobody uses, cached or not.
    pub fn unused(&self) -> usize {
        self.unused
    }

    /// All blocks.
    pub fn capacity(&self) -> usize {
        self.blocks.len()
    }

    /// Cached blocks lost to new ones so far.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    fn append_unused(&mut self, id: BlockId) {
        let previous = self.newest;
        let block = &mut self.blocks[id as usize];
        block.previous = previous;
        block.next = NONE;
        match self.blocks.get_mut(previous as usize) {
            Some(last) => last.next = id,
            None => self.oldest = id,
        }
        self.newest = id;
        self.unused += 1;
    }

    fn unlink(&mut self, id: BlockId) {
        let Block { previous, next, .. } = self.blocks[id as usize];
        match self.blocks.get_mut(previous as usize) {
            Some(block) => block.next = next,
            None => self.oldest = next,
        }
        match self.blocks.get_mut(next as usize) {
            Some(block) => block.previous = previous,
            None => self.newest = previous,
        }
        self.unused -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(cache: &mut KvCache, hashes: &[u64]) -> Vec<BlockId> {
        let mut evicted = Vec::new();
        hashes
            .iter()
            .map(|hash| {
                let id = cache.allocate(&mut evicted).unwrap();
                cache.name(id, *hash);
                id
            })
            .collect()
    }

    #[test]
    fn released_blocks_stay_findable_until_needed() {
        let mut cache = KvCache::new(3);
        let blocks = fill(&mut cache, &[1, 2, 3]);
        cache.release(&blocks);
        assert_eq!(cache.cached(&[1, 2, 3, 4]), 3);
        assert_eq!(cache.unused(), 3);
    }

    #[test]
    fn the_tail_of_a_prompt_is_evicted_before_its_head() {
        let mut cache = KvCache::new(3);
        let blocks = fill(&mut cache, &[1, 2, 3]);
        cache.release(&blocks);
        fill(&mut cache, &[9]);
        assert_eq!(cache.cached(&[1, 2, 3]), 2);
        assert_eq!(cache.evictions(), 1);
    }

    #[test]
    fn blocks_in_use_are_never_evicted() {
        let mut cache = KvCache::new(2);
        fill(&mut cache, &[1, 2]);
        assert_eq!(cache.allocate(&mut Vec::new()), None);
        assert!(cache.reuse(1).is_some());
    }

    #[test]
    fn a_block_used_twice_is_free_after_both_let_go() {
        let mut cache = KvCache::new(1);
        let first = fill(&mut cache, &[1]);
        let second = [cache.reuse(1).unwrap()];
        cache.release(&first);
        assert_eq!(cache.unused(), 0);
        cache.release(&second);
        assert_eq!(cache.unused(), 1);
    }
}
