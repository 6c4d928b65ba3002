//! What the index keeps per worker.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::mem::size_of;
use std::time::Duration;

use serde::Serialize;

use super::tree::{Holding, RunId};
use crate::hash::HashedMap;
use crate::keys::BlockKey;

/// What one announced block costs in the table from the engine's hashes, at worst seven sixteenths full.
const ENGINE_BLOCK_BYTES: usize = 5 * size_of::<(u64, EngineBlock)>() / 2;

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
}

/// Order of forgetting: the longest unused first, and of one prompt its tail before its head.
pub(super) type Age = (u64, Reverse<u32>, RunId);

pub(super) struct Books {
    pub(super) source: Source,
    pub(super) capacity_blocks: u32,
    pub(super) by_age: BTreeSet<Age>,
    pub(super) held_blocks: u64,
    pub(super) engine: HashedMap<u64, EngineBlock>,
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
            span: 1,
            orphans: 0,
            unknown_removals: 0,
            last_event: None,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.engine.len() * ENGINE_BLOCK_BYTES
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
    /// Stored events that could not be placed, because their parent was never seen.
    pub orphans: u64,
    /// Removals of blocks never announced.
    pub unknown_removals: u64,
    /// When it last sent an event.
    pub last_event: Option<Duration>,
}
