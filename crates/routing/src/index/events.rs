//! Exact knowledge: a worker announces what it stores and drops.
//!
//! Events are hints from configured hosts, not facts: they are counted, bounded and placed only where their
//! parent is known. What cannot be placed is an error for the caller to log and a counter in
//! [`super::WorkerKnowledge`], never a silent zero.

use std::time::Duration;

use super::books::EngineBlock;
use super::cache::CacheId;
use super::loadable::Medium;
use super::{PrefixIndex, Trust};
use crate::error::RoutingError;
use crate::keys::{BlockHasher, Root};

/// A block under the engine's own, opaque name. Longer names are folded to 64 bits by whoever decodes them.
pub type EngineHash = u64;

/// The fewest announced blocks tolerated whatever a worker's capacity: it may not be known yet.
const ANNOUNCED_FLOOR: usize = 1 << 16;

/// A worker may announce this many times its capacity: host memory and disk count as cached, too.
const ANNOUNCED_PER_CAPACITY: usize = 8;

/// Consecutive blocks that a worker has stored.
#[derive(Clone, Copy)]
pub struct Stored<'a> {
    /// The block before the first one; `None` at the start of a prompt.
    pub parent: Option<EngineHash>,
    /// Salt and adapter, as the event names them; used where there is no parent.
    pub root: Root,
    /// One name per block.
    pub hashes: &'a [EngineHash],
    /// The tokens of all blocks, in order.
    pub tokens: &'a [u32],
    /// The engine's block size.
    pub block_tokens: usize,
    /// Where they lie. Of blocks that must be loaded first, names alone are enough.
    pub medium: Medium,
}

impl PrefixIndex {
    /// Takes in a stored event.
    ///
    /// # Errors
    /// If the event contradicts itself, its block size is no multiple of ours, or its parent is unknown. The
    /// index is then as it was, except that the worker's counters tell.
    pub fn stored(
        &mut self,
        cache: impl Into<CacheId>,
        event: Stored<'_>,
        now: Duration,
    ) -> Result<(), RoutingError> {
        let cache = cache.into();
        if event.medium != Medium::Resident {
            return self.loadable(cache, &event, now);
        }
        let span = self.span_of(&event)?;
        let seed = self.seed;
        let limit = self.announced_limit(cache)?;
        let now_ms = self.advance(now);
        let books = self.books_mut(cache).ok_or(RoutingError::UnknownWorker)?;
        books.last_event = Some(now);
        if books.span != span && !books.engine.is_empty() {
            self.forget_all(cache);
        }
        let books = self.books_mut(cache).ok_or(RoutingError::UnknownWorker)?;
        books.span = span;
        let announced = books.announced() + event.hashes.len();
        if announced > limit {
            self.forget_all(cache);
            return Err(RoutingError::TooManyBlocks { announced, limit });
        }
        let (below, depth, mut hasher) = match event.parent {
            None => (None, 0, BlockHasher::after(event.root)),
            Some(parent) => {
                let Some((block, run)) = self.announced(cache, parent) else {
                    if let Some(books) = self.books_mut(cache) {
                        books.orphans += 1;
                    }
                    return Err(RoutingError::Orphan);
                };
                (Some(run), block.depth, BlockHasher::resume(seed, block.key))
            }
        };
        let keys: Vec<_> = event
            .tokens
            .chunks_exact(self.block_tokens)
            .map(|block| hasher.push_tokens(block))
            .collect();
        if keys.is_empty() {
            return Ok(());
        }
        self.hold(cache, below, depth, &keys, Trust::Announced, now_ms);
        let mut shifts = Vec::new();
        if let Some(books) = self.books_mut(cache) {
            for (place, hash) in (1u32..).zip(event.hashes) {
                let Some(key) = keys.get((place * span) as usize - 1) else {
                    break;
                };
                let block = EngineBlock {
                    key: *key,
                    depth: depth + place * span,
                    media: 0,
                };
                shifts.push(books.put(*hash, block, Medium::Resident));
            }
        }
        for shift in shifts {
            self.shift(shift);
        }
        self.forget_beyond_capacity(cache);
        self.forget_beyond_byte_cap();
        Ok(())
    }

    /// Takes in a removed event. Names never announced are counted and ignored.
    pub fn removed(
        &mut self,
        cache: impl Into<CacheId>,
        hashes: &[EngineHash],
        medium: Medium,
        now: Duration,
    ) {
        let cache = cache.into();
        self.advance(now);
        if medium != Medium::Resident {
            self.unloadable(cache, hashes, medium);
            return;
        }
        for hash in hashes {
            let Some(books) = self.books_mut(cache) else {
                return;
            };
            books.last_event = Some(now);
            let span = books.span;
            let Some(block) = books.take(*hash, Medium::Resident) else {
                books.unknown_removals += 1;
                continue;
            };
            let Some(mut run) = self.tree.run_of(block.key) else {
                continue;
            };
            let keep = block.depth.saturating_sub(span);
            while let Some(parent) = self
                .tree
                .run(run)
                .parent
                .filter(|_| self.tree.run(run).start > keep)
            {
                run = parent;
            }
            let within = keep.saturating_sub(self.tree.run(run).start);
            self.cut(cache, run, within);
        }
    }

    /// A cache was dropped as a whole, or the events about it can no longer be trusted.
    pub fn cleared(&mut self, cache: impl Into<CacheId>, now: Duration) {
        let cache = cache.into();
        self.advance(now);
        self.forget_all(cache);
        if let Some(books) = self.books_mut(cache) {
            books.last_event = Some(now);
        }
    }

    /// Our blocks per block of the engine.
    pub(super) fn span_of(&self, event: &Stored<'_>) -> Result<u32, RoutingError> {
        if event.block_tokens == 0
            || event.hashes.len().checked_mul(event.block_tokens) != Some(event.tokens.len())
        {
            return Err(RoutingError::MalformedEvent {
                hashes: event.hashes.len(),
                tokens: event.tokens.len(),
                block_tokens: event.block_tokens,
            });
        }
        let mismatch = RoutingError::BlockSize {
            engine: event.block_tokens,
            index: self.block_tokens,
        };
        if !event.block_tokens.is_multiple_of(self.block_tokens) {
            return Err(mismatch);
        }
        u32::try_from(event.block_tokens / self.block_tokens).map_err(|_| mismatch)
    }

    /// A parent by the engine's name, if the worker still holds it by our books.
    fn announced(&self, cache: CacheId, hash: EngineHash) -> Option<(EngineBlock, super::RunId)> {
        let block = *self.books(cache)?.engine.get(&hash)?;
        let run = self.tree.run_of(block.key)?;
        let holding = self.tree.run(run).holding(cache)?;
        (self.tree.run(run).start + holding.confirmed >= block.depth).then_some((block, run))
    }

    pub(super) fn announced_limit(&self, cache: CacheId) -> Result<usize, RoutingError> {
        let books = self.books(cache).ok_or(RoutingError::UnknownWorker)?;
        Ok((books.capacity_blocks as usize)
            .saturating_mul(ANNOUNCED_PER_CAPACITY)
            .max(ANNOUNCED_FLOOR))
    }
}
