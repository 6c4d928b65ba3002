//! Blocks that a worker does not hold in the memory it computes from, but can load: from host memory, a disk, or a
//! store that it shares with others.
//!
//! ```text
//! credit = blocks that it holds + sum over the loadable blocks that follow them of worth(nearest tier)
//! worth  = 1 - time to load / time to compute
//! ```
//! Workers announce such blocks by name, and often by nothing else: vLLM's offloading tells the hash, but neither
//! tokens nor parent nor salt. So a name stays known for a while after the worker dropped the block itself. What
//! cannot be named is counted as an orphan, like any other event that cannot be placed.
//!
//! What lies in a store that workers share is credited to every worker that has put something there itself: whoever
//! wrote a block, all of them can load it.
//!
//! A lookup walks the prompt from where the held blocks end until the first that is not loadable: it costs a table
//! lookup for each block it credits, and one for a worker that has none.

use std::time::Duration;

use serde::Serialize;

use super::books::{Books, EngineBlock, Shift};
use super::cache::CacheId;
use super::events::EngineHash;
use super::{Matches, PrefixIndex, Stored};
use crate::error::RoutingError;
use crate::keys::{BlockHasher, BlockKey};

/// Where a worker has a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Medium {
    /// In the memory it computes from.
    #[default]
    Resident,
    /// In host memory.
    Host,
    /// On a disk.
    Storage,
    /// In a store that other workers use, too.
    Shared,
}

impl Medium {
    pub(super) fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// What a loadable block is worth, in blocks that are there already: the share of computing that loading saves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoadableWorth {
    /// From host memory.
    pub host: f64,
    /// From a disk.
    pub storage: f64,
    /// From a store shared with others.
    pub shared: f64,
}

impl Default for LoadableWorth {
    /// Less than loading saved in our own benchmark (`make bench-blocks`: 0.9 and more, from a folder and from Redis on the
    /// same machine), because disks and networks are slower.
    fn default() -> Self {
        Self {
            host: 0.9,
            storage: 0.8,
            shared: 0.7,
        }
    }
}

impl LoadableWorth {
    /// In thousandths of a block, of the nearest tier among these; `None` if it is in none.
    fn of(&self, media: u8) -> Option<u32> {
        let tiers = [
            (Medium::Host, self.host),
            (Medium::Storage, self.storage),
            (Medium::Shared, self.shared),
        ];
        let nearest = tiers.iter().find(|(medium, _)| media & medium.bit() != 0)?;
        Some((nearest.1.clamp(0.0, 1.0) * 1000.0) as u32)
    }
}

/// Loadable blocks of one prompt, behind those that a worker holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Credit {
    pub(super) blocks: u32,
    /// What they are worth, in thousandths of a block.
    pub(super) thousandths: u32,
}

impl PrefixIndex {
    /// Takes in that a worker can load blocks.
    pub(super) fn loadable(
        &mut self,
        cache: CacheId,
        event: &Stored<'_>,
        now: Duration,
    ) -> Result<(), RoutingError> {
        self.advance(now);
        let limit = self.announced_limit(cache)?;
        let seed = self.seed;
        let block_tokens = self.block_tokens;
        let described = self.span_of(event).ok();
        let books = self.books_mut(cache).ok_or(RoutingError::UnknownWorker)?;
        books.last_event = Some(now);
        let announced = books.announced() + event.hashes.len();
        if announced > limit {
            self.forget_all(cache);
            return Err(RoutingError::TooManyBlocks { announced, limit });
        }
        // Blocks that were never announced before are named by their tokens, if the event tells them.
        let mut chain = described
            .filter(|span| books.engine.is_empty() || books.span == *span)
            .and_then(|span| {
                let (depth, hasher) = match event.parent {
                    None => (0, BlockHasher::after(event.root)),
                    Some(parent) => {
                        let parent = books.engine.get(&parent)?;
                        (parent.depth, BlockHasher::resume(seed, parent.key))
                    }
                };
                books.span = span;
                Some((span, depth, hasher))
            });
        let mut tokens = event.tokens.chunks_exact(event.block_tokens.max(1));
        let mut orphans = 0;
        let mut shifts = Vec::new();
        for hash in event.hashes {
            let named = chain.as_mut().and_then(|(span, depth, hasher)| {
                let mut key: Option<BlockKey> = None;
                for block in tokens.next()?.chunks_exact(block_tokens) {
                    key = Some(hasher.push_tokens(block));
                }
                *depth += *span;
                Some(EngineBlock {
                    key: key?,
                    depth: *depth,
                    media: 0,
                })
            });
            // What was announced with the blocks themselves is known better: it had the salt.
            match books.engine.get(hash).copied().or(named) {
                Some(block) => shifts.push(books.put(*hash, block, event.medium)),
                None => orphans += 1,
            }
        }
        books.orphans += orphans;
        for shift in shifts {
            self.shift(shift);
        }
        self.forget_beyond_byte_cap();
        if orphans > 0 {
            return Err(RoutingError::Orphan);
        }
        Ok(())
    }

    /// Takes in that a worker can no longer load blocks from a tier.
    pub(super) fn unloadable(&mut self, cache: CacheId, hashes: &[EngineHash], medium: Medium) {
        let mut lost = Vec::new();
        if let Some(books) = self.books_mut(cache) {
            for hash in hashes {
                match books.take(*hash, medium) {
                    Some(block) => lost.push(block.key.0),
                    None => books.unknown_removals += 1,
                }
            }
        }
        if medium == Medium::Shared {
            self.unshare(&lost);
        }
    }

    /// Takes over what changed in what is shared.
    pub(super) fn shift(&mut self, shift: Shift) {
        if let Some(key) = shift.gained {
            *self.shared.entry(key).or_default() += 1;
        }
        self.unshare(shift.lost.as_slice());
    }

    /// One worker less shares these blocks.
    pub(super) fn unshare(&mut self, keys: &[u64]) {
        for key in keys {
            if let Some(workers) = self.shared.get_mut(key) {
                *workers -= 1;
                if *workers == 0 {
                    self.shared.remove(key);
                }
            }
        }
    }

    /// Adds to what caches hold what can be loaded behind it.
    pub(super) fn credit_loadable(&self, keys: &[BlockKey], matches: &mut Matches) {
        for (cache, books) in self.caches() {
            if books.loadable.is_empty() && !books.shares {
                continue;
            }
            let found = matches.found_mut(cache, self.is_only(cache));
            found.credit = self.credit(books, keys, found.blocks);
        }
    }

    fn credit(&self, books: &Books, keys: &[BlockKey], held: u32) -> Credit {
        let span = books.span.max(1);
        let mut credit = Credit::default();
        let mut reached = held;
        let mut end = held - held % span + span;
        while let Some(key) = keys.get(end as usize - 1) {
            let mut media = books.loadable.get(&key.0).copied().unwrap_or(0);
            if books.shares && self.shared.contains_key(&key.0) {
                media |= Medium::Shared.bit();
            }
            let Some(thousandths) = self.worth.of(media) else {
                break;
            };
            let blocks = end - reached;
            credit.blocks += blocks;
            credit.thousandths += blocks * thousandths;
            reached = end;
            end += span;
        }
        credit
    }
}
