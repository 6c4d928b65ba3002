//! The prompts themselves: a radix tree whose edges are runs of block keys.
//!
//! A chat of six thousand blocks is one run, not six thousand nodes. Who holds a run is a *count* per worker
//! ("the first n blocks of it"), because engines evict a prompt from its tail: trimming is then a subtraction,
//! and a run is split only where two prompts part.
//!
//! Because keys are chained, a known key proves that its whole prefix is known. So the deepest known block of a
//! prompt is found by binary search, and the holders by walking up from there.

use std::mem::size_of;

use super::cache::CacheId;
use crate::gradual::{GradualMap, GradualVec};
use crate::keys::BlockKey;

/// What one run costs: itself and the slack of its vectors.
const RUN_BYTES: usize = size_of::<Run>() + 32;
/// What one block costs: its key in the run (doubling vectors waste up to as much again) and its place in the
/// table from keys to runs, whose parts are at worst seven sixteenths full.
const BLOCK_BYTES: usize = 2 * size_of::<BlockKey>() + 40;
/// What one holding costs: itself in the run, and its entry in the cache's order of age.
const HOLDING_BYTES: usize = 2 * size_of::<Holding>() + 48;

pub(super) type RunId = u32;

/// How much of a run lies in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) cache: CacheId,
    /// Blocks from the run's start, announced or only expected.
    pub(super) held: u32,
    /// Blocks from the run's start that the worker itself announced; never more than `held`.
    pub(super) confirmed: u32,
    /// When a request last passed through, in milliseconds.
    pub(super) touched: u64,
    /// Since when blocks beyond `confirmed` are expected without a word from the worker.
    pub(super) promised: u64,
}

/// Consecutive blocks that no known prompt parts within.
#[derive(Default)]
pub(super) struct Run {
    /// How many blocks precede it in the prompt.
    pub(super) start: u32,
    pub(super) parent: Option<RunId>,
    place_in_parent: u32,
    pub(super) children: Vec<RunId>,
    pub(super) keys: Vec<BlockKey>,
    /// Ordered by cache.
    pub(super) holders: Vec<Holding>,
}

impl Run {
    pub(super) fn len(&self) -> u32 {
        self.keys.len() as u32
    }

    pub(super) fn end(&self) -> u32 {
        self.start + self.len()
    }

    pub(super) fn holding(&self, cache: CacheId) -> Option<&Holding> {
        let at = self.find(cache).ok()?;
        self.holders.get(at)
    }

    pub(super) fn holding_mut(&mut self, cache: CacheId) -> Option<&mut Holding> {
        let at = self.find(cache).ok()?;
        self.holders.get_mut(at)
    }

    fn find(&self, cache: CacheId) -> Result<usize, usize> {
        self.holders
            .binary_search_by_key(&cache, |holding| holding.cache)
    }
}

#[derive(Default)]
pub(super) struct Tree {
    runs: GradualVec<Run>,
    free: Vec<RunId>,
    home: GradualMap<RunId>,
    holdings: usize,
}

impl Tree {
    pub(super) fn run(&self, id: RunId) -> &Run {
        &self.runs[id as usize]
    }

    pub(super) fn run_mut(&mut self, id: RunId) -> &mut Run {
        &mut self.runs[id as usize]
    }

    #[cfg(test)]
    pub(super) fn live(&self) -> impl Iterator<Item = (RunId, &Run)> {
        (0..)
            .zip(self.runs.iter())
            .filter(|(id, _)| !self.free.contains(id))
    }

    pub(super) fn run_of(&self, key: BlockKey) -> Option<RunId> {
        self.home.get(key.0).copied()
    }

    /// How many of the leading blocks any worker holds.
    pub(super) fn known(&self, keys: &[BlockKey]) -> usize {
        match keys.last() {
            // The common cases first: the prompt was seen whole, or not at all.
            Some(last) if self.home.contains(last.0) => keys.len(),
            _ => keys.partition_point(|key| self.home.contains(key.0)),
        }
    }

    pub(super) fn blocks(&self) -> usize {
        self.home.len()
    }

    pub(super) fn runs(&self) -> usize {
        self.runs.len() - self.free.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.runs() * RUN_BYTES + self.blocks() * BLOCK_BYTES + self.holdings * HOLDING_BYTES
    }

    pub(super) fn insert_holding(&mut self, id: RunId, holding: Holding) {
        let run = &mut self.runs[id as usize];
        if let Err(at) = run.find(holding.cache) {
            run.holders.insert(at, holding);
            self.holdings += 1;
        }
    }

    pub(super) fn remove_holding(&mut self, id: RunId, cache: CacheId) -> Option<Holding> {
        let run = &mut self.runs[id as usize];
        let at = run.find(cache).ok()?;
        self.holdings -= 1;
        Some(run.holders.remove(at))
    }

    /// Makes sure that all `keys` (which follow the block at `below`) are in the tree.
    ///
    /// Returns the run of the last one, and the run that had to be split off on the way, whose holders now hold
    /// two runs instead of one. `keys` must not be empty.
    pub(super) fn grow(
        &mut self,
        below: Option<RunId>,
        below_depth: u32,
        keys: &[BlockKey],
    ) -> (RunId, Option<RunId>) {
        let known = self.known(keys);
        let depth = below_depth + known as u32;
        let above = match known.checked_sub(1).and_then(|last| keys.get(last)) {
            Some(key) => self.run_of(*key),
            None => below,
        };
        let fresh = &keys[known..];
        let Some(above) = above else {
            return (self.add_run(None, 0, fresh), None);
        };
        if fresh.is_empty() {
            return (above, None);
        }
        let run = &mut self.runs[above as usize];
        if run.end() == depth && run.children.is_empty() {
            run.keys.extend_from_slice(fresh);
            self.settle_in(above, fresh);
            return (above, None);
        }
        let split = (run.end() != depth).then(|| self.split(above, depth));
        (self.add_run(Some(above), depth, fresh), split)
    }

    /// Cuts a run at a depth; what lies beyond becomes its child.
    fn split(&mut self, head: RunId, depth: u32) -> RunId {
        let run = &mut self.runs[head as usize];
        let kept = depth - run.start;
        let keys = run.keys.split_off(kept as usize);
        let children = std::mem::take(&mut run.children);
        let mut holders = Vec::new();
        for holding in &mut run.holders {
            if holding.held > kept {
                holders.push(Holding {
                    held: holding.held - kept,
                    confirmed: holding.confirmed.saturating_sub(kept),
                    ..*holding
                });
                holding.held = kept;
                holding.confirmed = holding.confirmed.min(kept);
            }
        }
        self.holdings += holders.len();
        let tail = self.add_run(Some(head), depth, &keys);
        for child in &children {
            self.runs[*child as usize].parent = Some(tail);
        }
        let run = &mut self.runs[tail as usize];
        run.children = children;
        run.holders = holders;
        tail
    }

    fn add_run(&mut self, parent: Option<RunId>, start: u32, keys: &[BlockKey]) -> RunId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.runs.push(Run::default());
            (self.runs.len() - 1) as RunId
        });
        let place_in_parent = parent.map_or(0, |parent| {
            let siblings = &mut self.runs[parent as usize].children;
            siblings.push(id);
            (siblings.len() - 1) as u32
        });
        self.runs[id as usize] = Run {
            start,
            parent,
            place_in_parent,
            keys: keys.to_vec(),
            ..Run::default()
        };
        self.settle_in(id, keys);
        id
    }

    fn settle_in(&mut self, id: RunId, keys: &[BlockKey]) {
        for key in keys {
            self.home.insert(key.0, id);
        }
    }

    /// Forgets the blocks of a run that nobody holds any more. Descendants must have been trimmed before.
    pub(super) fn trim(&mut self, id: RunId) {
        let run = &mut self.runs[id as usize];
        let held = run
            .holders
            .iter()
            .map(|holding| holding.held)
            .max()
            .unwrap_or(0);
        if held == run.len() {
            return;
        }
        debug_assert!(
            run.children.is_empty(),
            "a held child under a run that nobody holds whole"
        );
        for key in run.keys.drain(held as usize..) {
            self.home.remove(key.0);
        }
        if held == 0 {
            let run = std::mem::take(run);
            self.unlink(run.parent, run.place_in_parent);
            self.free.push(id);
        }
    }

    fn unlink(&mut self, parent: Option<RunId>, place: u32) {
        let Some(parent) = parent else { return };
        let siblings = &mut self.runs[parent as usize].children;
        siblings.swap_remove(place as usize);
        if let Some(moved) = siblings.get(place as usize).copied() {
            self.runs[moved as usize].place_in_parent = place;
        }
    }
}
