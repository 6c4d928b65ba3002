//! Who holds which block.
//!
//! A block is in one of three states:
//! ```text
//! unused --allocate--> held (by one table or more) --last release--> idle, if it was published
//!    ^                   ^                      \------------------> unused, if not
//!    |                   \--take_cached-- idle
//!    \------------------------evicted----/   (its name is forgotten; goes straight to the allocator)
//! ```
//! Held blocks are never written again once published, so they can be shared. Idle blocks are given
//! away only when no unused block is left, longest idle first.

use std::collections::HashMap;
use std::ops::Range;

use model::BLOCK_TOKENS;

use super::chain::Chain;
use super::event::KvEvent;
use super::hash::BlockHash;
use super::lru::IdleList;
use super::table::BlockTable;

/// All blocks of the engine.
#[derive(Debug)]
pub(crate) struct BlockPool {
    blocks: Vec<Block>,
    unused: Vec<u32>,
    idle: IdleList,
    cached: HashMap<BlockHash, u32>,
    caching: bool,
    /// `None` when nobody listens.
    events: Option<Vec<KvEvent>>,
    /// `None` when there is no store behind the cache.
    turnover: Option<Turnover>,
}

/// Blocks whose contents a store may want, with their names. Valid until the next step is executed: nothing
/// is overwritten before.
#[derive(Debug, Default)]
pub(crate) struct Turnover {
    /// They can be reused from now on.
    pub(crate) named: Vec<(BlockHash, u32)>,
    /// Their place was given to others.
    pub(crate) evicted: Vec<(BlockHash, u32)>,
}

#[derive(Debug, Clone, Default)]
struct Block {
    holders: u32,
    name: Option<BlockHash>,
}

/// What the cache holds of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CachedPrefix {
    /// Blocks from the start of the chain.
    pub(crate) blocks: usize,
    /// How many of them nobody holds now: taking them makes fewer blocks available.
    pub(crate) idle: usize,
}

impl BlockPool {
    /// A pool of `blocks` unused blocks. Without `caching` no block outlives its holders.
    pub(crate) fn new(blocks: usize, caching: bool, events: bool) -> Self {
        Self {
            blocks: vec![Block::default(); blocks],
            unused: (0..blocks as u32).rev().collect(),
            idle: IdleList::new(blocks),
            cached: HashMap::new(),
            caching,
            events: events.then(Vec::new),
            turnover: None,
        }
    }

    /// Remembers what comes and goes, for [`BlockPool::take_turnover`].
    pub(crate) fn with_turnover(mut self) -> Self {
        self.turnover = Some(Turnover::default());
        self
    }

    /// What came and went since the last call.
    pub(crate) fn take_turnover(&mut self) -> Turnover {
        self.turnover
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Whether computed blocks are offered to others.
    pub(crate) fn is_caching(&self) -> bool {
        self.caching
    }

    /// Blocks that can be allocated now.
    pub(crate) fn available(&self) -> usize {
        self.unused.len() + self.idle.len()
    }

    /// Blocks that some table holds.
    pub(crate) fn held(&self) -> usize {
        self.blocks.len() - self.available()
    }

    /// How much of a chain is cached.
    pub(crate) fn cached_prefix(&self, hashes: &[BlockHash]) -> CachedPrefix {
        let mut found = CachedPrefix { blocks: 0, idle: 0 };
        for block in hashes.iter().map_while(|hash| self.cached.get(hash)) {
            found.blocks += 1;
            found.idle += usize::from(self.blocks[*block as usize].holders == 0);
        }
        found
    }

    /// Lets `table`, which is empty, share the cached blocks of `hashes`, up to the first that is missing.
    pub(crate) fn take_cached(&mut self, table: &mut BlockTable, hashes: &[BlockHash]) {
        debug_assert!(table.blocks.is_empty());
        for &block in hashes.iter().map_while(|hash| self.cached.get(hash)) {
            let entry = &mut self.blocks[block as usize];
            if entry.holders == 0 {
                self.idle.remove(block);
            }
            entry.holders += 1;
            table.blocks.push(block);
        }
    }

    /// Adds `count` blocks to `table`, or none and `false` when there are not so many.
    #[must_use]
    pub(crate) fn allocate(&mut self, table: &mut BlockTable, count: usize) -> bool {
        if count > self.available() {
            return false;
        }
        let mut evicted = Vec::new();
        for _ in 0..count {
            let block = match self.unused.pop() {
                Some(block) => block,
                None => match self.idle.pop_oldest() {
                    Some(block) => {
                        evicted.extend(self.forget(block));
                        block
                    }
                    None => break,
                },
            };
            debug_assert_eq!(self.blocks[block as usize].holders, 0);
            self.blocks[block as usize].holders = 1;
            table.blocks.push(block);
        }
        if !evicted.is_empty() {
            self.tell(KvEvent::Removed { hashes: evicted });
        }
        true
    }

    /// Offers the blocks `range` of `table`, whose keys and values are computed, to everybody. `tokens`
    /// are those of the whole sequence. A block that another sequence published first stays private.
    pub(crate) fn publish(
        &mut self,
        table: &BlockTable,
        range: Range<usize>,
        chain: &Chain,
        tokens: &[u32],
    ) {
        if !self.caching {
            return;
        }
        let mut run = range.start..range.start;
        for index in range {
            let name = chain.hashes()[index];
            let block = table.blocks[index];
            if self.cached.contains_key(&name) {
                self.tell_stored(run, chain, tokens);
                run = index + 1..index + 1;
                continue;
            }
            debug_assert!(self.blocks[block as usize].holders > 0);
            debug_assert!(self.blocks[block as usize].name.is_none());
            self.blocks[block as usize].name = Some(name);
            self.cached.insert(name, block);
            if let Some(turnover) = &mut self.turnover {
                turnover.named.push((name, block));
            }
            run.end = index + 1;
        }
        self.tell_stored(run, chain, tokens);
    }

    /// Takes all blocks from `table`. The last ones become idle first: the tail of a chain is of no use
    /// without its head, so it must go before it.
    pub(crate) fn release(&mut self, table: &mut BlockTable) {
        self.shrink(table, 0);
    }

    /// Takes all but the first `keep` blocks from `table`, the last ones first.
    pub(crate) fn shrink(&mut self, table: &mut BlockTable, keep: usize) {
        for block in table.blocks.drain(keep.min(table.blocks.len())..).rev() {
            let entry = &mut self.blocks[block as usize];
            debug_assert!(entry.holders > 0, "block {block} was freed twice");
            entry.holders -= 1;
            if entry.holders == 0 {
                if entry.name.is_some() {
                    self.idle.push(block);
                } else {
                    self.unused.push(block);
                }
            }
        }
    }

    /// Forgets all names. Held blocks stay with their holders.
    pub(crate) fn clear_cache(&mut self) {
        while let Some(block) = self.idle.pop_oldest() {
            self.unused.push(block);
        }
        for block in self.cached.drain().map(|(_, block)| block) {
            self.blocks[block as usize].name = None;
        }
        self.tell(KvEvent::Cleared);
    }

    /// What happened since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<KvEvent> {
        self.events.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn forget(&mut self, block: u32) -> Option<BlockHash> {
        let name = self.blocks[block as usize].name.take()?;
        self.cached.remove(&name);
        if let Some(turnover) = &mut self.turnover {
            turnover.evicted.push((name, block));
        }
        Some(name)
    }

    /// Blocks named since the last call came out of the store.
    pub(crate) fn forget_named(&mut self) {
        if let Some(turnover) = &mut self.turnover {
            turnover.named.clear();
        }
    }

    /// Tells what happened to blocks elsewhere.
    pub(crate) fn tell(&mut self, event: KvEvent) {
        if let Some(events) = &mut self.events {
            events.push(event);
        }
    }

    fn tell_stored(&mut self, run: Range<usize>, chain: &Chain, tokens: &[u32]) {
        if run.is_empty() || self.events.is_none() {
            return;
        }
        self.tell(KvEvent::Stored {
            hashes: chain.hashes()[run.clone()].to_vec(),
            parent: chain.parent(run.start),
            tokens: tokens[run.start * BLOCK_TOKENS..run.end * BLOCK_TOKENS].to_vec(),
            block_size: BLOCK_TOKENS,
            cache_salt: chain.salt_at(run.start),
        });
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
