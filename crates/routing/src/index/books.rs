//! What the index keeps per cache.

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::mem::size_of;
use std::time::Duration;

use serde::Serialize;

use super::loadable::Medium;
use super::tree::{Holding, RunId};
use crate::hash::HashedMap;
use crate::keys::BlockKey;

/// What one announced block costs in the table from the engine's hashes, at worst seven sixteenths full.
const ENGINE_BLOCK_BYTES: usize = 5 * size_of::<(u64, EngineBlock)>() / 2;

/// The same for a loadable block's key.
pub(super) const LOADABLE_BYTES: usize = 5 * size_of::<(u64, u8)>() / 2;

/// Where the knowledge about a worker's cache comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The worker announces what it stores and removes; expectations only bridge the time until it does.
    Events,
    /// Only from what was sent there: kept while it is likely still cached.
    Expectation,
}

/// A block under the engine's own name.
#[derive(Clone, Copy)]
pub(super) struct EngineBlock {
    pub(super) key: BlockKey,
    /// How many blocks of the prompt it completes.
    pub(super) depth: u32,
    /// Where the worker has it; 0 for a name that is only remembered.
    pub(super) media: u8,
}

/// What a block's coming changes in what is shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shift {
    pub(super) gained: Option<u64>,
    pub(super) lost: Option<u64>,
}

/// Order of forgetting: the longest unused first, and of one prompt its tail before its head.
pub(super) type Age = (u64, Reverse<u32>, RunId);

pub(super) struct Books {
    pub(super) source: Source,
    pub(super) capacity_blocks: u32,
    pub(super) by_age: BTreeSet<Age>,
    pub(super) held_blocks: u64,
    pub(super) engine: HashedMap<u64, EngineBlock>,
    /// Keys of blocks that can be loaded, and from where.
    pub(super) loadable: HashedMap<u64, u8>,
    /// Names of blocks that are nowhere any more, in the order in which they went: an event that says where they are
    /// now may still come.
    departed: VecDeque<u64>,
    /// Names in `engine` of blocks that are nowhere.
    nowhere: usize,
    /// Whether it ever put blocks into a store that others use, too.
    pub(super) shares: bool,
    /// Our blocks per block of the engine.
    pub(super) span: u32,
    pub(super) orphans: u64,
    pub(super) unknown_removals: u64,
    pub(super) last_event: Option<Duration>,
}

impl Books {
    pub(super) fn new(source: Source, capacity_blocks: u32) -> Self {
        Self {
            source,
            capacity_blocks,
            by_age: BTreeSet::new(),
            held_blocks: 0,
            engine: HashedMap::default(),
            loadable: HashedMap::default(),
            departed: VecDeque::new(),
            nowhere: 0,
            shares: false,
            span: 1,
            orphans: 0,
            unknown_removals: 0,
            last_event: None,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.engine.len() * ENGINE_BLOCK_BYTES
            + self.loadable.len() * LOADABLE_BYTES
            + self.departed.len() * size_of::<u64>()
    }

    /// How well it is known.
    pub(super) fn knowledge(&self) -> WorkerKnowledge {
        WorkerKnowledge {
            source: self.source,
            held_blocks: self.held_blocks,
            announced_blocks: self.announced() as u64,
            loadable_blocks: self.loadable.len() as u64,
            orphans: self.orphans,
            unknown_removals: self.unknown_removals,
            last_event: self.last_event,
        }
    }

    /// Blocks that are somewhere.
    pub(super) fn announced(&self) -> usize {
        self.engine.len() - self.nowhere
    }

    /// A block is there, too. Tells what that changes in what is shared.
    pub(super) fn put(&mut self, hash: u64, block: EngineBlock, medium: Medium) -> Shift {
        let mut shift = Shift::default();
        let before = self.engine.get(&hash).copied();
        self.nowhere -= usize::from(before.is_some_and(|before| before.media == 0));
        if let Some(other) = before.filter(|before| before.key != block.key) {
            let media = self.loadable.remove(&other.key.0).unwrap_or(0);
            shift.lost = (media & Medium::Shared.bit() != 0).then_some(other.key.0);
        }
        let before = before.filter(|before| before.key == block.key);
        let media = before.map_or(0, |before| before.media) | medium.bit();
        self.engine.insert(hash, EngineBlock { media, ..block });
        if medium != Medium::Resident {
            let media = self.loadable.entry(block.key.0).or_default();
            let is_new = *media & medium.bit() == 0;
            *media |= medium.bit();
            self.shares |= medium == Medium::Shared;
            shift.gained = (is_new && medium == Medium::Shared).then_some(block.key.0);
        }
        shift
    }

    /// A block is no longer there; `None` if it never was.
    pub(super) fn take(&mut self, hash: u64, medium: Medium) -> Option<EngineBlock> {
        let block = self.engine.get_mut(&hash)?;
        if block.media & medium.bit() == 0 {
            return None;
        }
        block.media &= !medium.bit();
        let block = *block;
        if medium != Medium::Resident
            && let Some(media) = self.loadable.get_mut(&block.key.0)
        {
            *media &= !medium.bit();
            if *media == 0 {
                self.loadable.remove(&block.key.0);
            }
        }
        if block.media == 0 {
            self.nowhere += 1;
            self.departed.push_back(hash);
            self.forget_departed();
        }
        Some(block)
    }

    fn forget_departed(&mut self) {
        while self.departed.len() > self.capacity_blocks as usize {
            let Some(hash) = self.departed.pop_front() else {
                return;
            };
            if self.engine.get(&hash).is_some_and(|block| block.media == 0) {
                self.engine.remove(&hash);
                self.nowhere -= 1;
            }
        }
    }

    /// Forgets all names, and with them what can be loaded. Keys of what it shared.
    pub(super) fn forget_names(&mut self) -> Vec<u64> {
        let media = self.loadable.iter();
        let shared = media.filter(|(_, media)| *media & Medium::Shared.bit() != 0);
        let shared = shared.map(|(key, _)| *key).collect();
        self.engine = HashedMap::default();
        self.loadable = HashedMap::default();
        self.departed = VecDeque::new();
        self.nowhere = 0;
        shared
    }

    /// How much of a holding may be counted on at this time.
    pub(super) fn visible(&self, holding: &Holding, now: u64, limits: &super::Limits) -> u32 {
        match self.source {
            Source::Events if now > holding.promised.saturating_add(limits.confirm_within_ms) => {
                holding.confirmed
            }
            Source::Expectation if now > holding.touched.saturating_add(limits.idle_ms) => 0,
            _ => holding.held,
        }
    }
}

/// How well a worker's cache is known: what a metric or `explain` shows, so that a score without knowledge
/// behind it is never mistaken for a worker without cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerKnowledge {
    /// Events or expectation.
    pub source: Source,
    /// Blocks the worker is believed to hold.
    pub held_blocks: u64,
    /// Engine blocks it announced and did not remove.
    pub announced_blocks: u64,
    /// Blocks that it can load from beyond the memory it computes from.
    pub loadable_blocks: u64,
    /// Stored events that could not be placed, because their parent was never seen.
    pub orphans: u64,
    /// Removals of blocks never announced.
    pub unknown_removals: u64,
    /// When it last sent an event.
    pub last_event: Option<Duration>,
}

impl WorkerKnowledge {
    /// Of two ranks together.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            source: self.source,
            held_blocks: self.held_blocks + other.held_blocks,
            announced_blocks: self.announced_blocks + other.announced_blocks,
            loadable_blocks: self.loadable_blocks + other.loadable_blocks,
            orphans: self.orphans + other.orphans,
            unknown_removals: self.unknown_removals + other.unknown_removals,
            last_event: self.last_event.max(other.last_event),
        }
    }
}
