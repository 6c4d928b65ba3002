//! What a lookup finds.

use super::cache::CacheId;
use super::loadable::Credit;
use crate::worker::WorkerId;

/// How many leading blocks of one prompt each worker holds.
///
/// Of a worker with several ranks it is what a request finds *on average*, as nobody knows on which rank it will land: a
/// prompt that one of four ranks holds counts a quarter. Whoever sends it to a rank by name says so with
/// [`Matches::count_on`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    by_worker: Vec<Found>,
    /// Of workers with several ranks, what was found in each.
    by_rank: Vec<(CacheId, Found)>,
}

/// What was found in one cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Leading blocks that it holds.
    pub(super) blocks: u32,
    /// Those behind them that can be loaded.
    pub(super) credit: Credit,
}

impl Found {
    fn worth(self) -> u64 {
        1000 * u64::from(self.blocks) + u64::from(self.credit.thousandths)
    }
}

impl Matches {
    /// From pairs, for callers that know better than an index.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (WorkerId, u32)>) -> Self {
        let mut matches = Self::default();
        for (worker, blocks) in pairs {
            matches.of_worker(worker).blocks = blocks;
        }
        matches
    }

    /// Leading blocks that this worker holds.
    pub fn blocks(&self, worker: WorkerId) -> u32 {
        self.found(worker).blocks
    }

    /// Blocks that this worker can load behind those that it holds.
    pub fn loadable(&self, worker: WorkerId) -> u32 {
        self.found(worker).credit.blocks
    }

    /// What all of these are worth, in thousandths of a block that the worker holds.
    pub fn worth(&self, worker: WorkerId) -> u64 {
        self.found(worker).worth()
    }

    /// The longest match of any worker.
    pub fn longest(&self) -> u32 {
        let blocks = self.by_worker.iter().map(|found| found.blocks);
        blocks.max().unwrap_or(0)
    }

    /// The rank of this worker that saves most of the prompt; `None` if it has one cache only, or none of them helps.
    pub fn best_rank(&self, worker: WorkerId) -> Option<u16> {
        let ranks = self.by_rank.iter().filter(|(id, _)| id.worker == worker);
        let helpful = ranks.filter(|(_, found)| found.worth() > 0);
        // Of equals the first.
        let best = helpful.rev().max_by_key(|(_, found)| found.worth())?;
        Some(best.0.rank)
    }

    /// Takes the worker for one of its ranks: that is where the request will be sent.
    pub fn count_on(&mut self, worker: WorkerId, rank: u16) {
        let named = CacheId { worker, rank };
        let found = self.by_rank.iter().find(|(id, _)| *id == named);
        *self.of_worker(worker) = found.map(|(_, found)| *found).unwrap_or_default();
    }

    /// Gives a worker of so many ranks what a request finds on average.
    pub(super) fn take_average(&mut self, worker: WorkerId, ranks: u32) {
        let mut sum = Found::default();
        for (_, found) in self.by_rank.iter().filter(|(id, _)| id.worker == worker) {
            sum.blocks += found.blocks;
            sum.credit.blocks += found.credit.blocks;
            sum.credit.thousandths += found.credit.thousandths;
        }
        if sum != Found::default() {
            let ranks = ranks.max(1);
            *self.of_worker(worker) = Found {
                blocks: sum.blocks / ranks,
                credit: Credit {
                    blocks: sum.credit.blocks / ranks,
                    thousandths: sum.credit.thousandths / ranks,
                },
            };
        }
    }

    fn found(&self, worker: WorkerId) -> Found {
        let at = usize::from(worker.0);
        self.by_worker.get(at).copied().unwrap_or_default()
    }

    fn of_worker(&mut self, worker: WorkerId) -> &mut Found {
        let at = usize::from(worker.0);
        if self.by_worker.len() <= at {
            self.by_worker.resize(at + 1, Found::default());
        }
        &mut self.by_worker[at]
    }

    /// What was found in a cache, which is its worker's only one or not.
    pub(super) fn found_mut(&mut self, cache: CacheId, is_only: bool) -> &mut Found {
        if is_only {
            return self.of_worker(cache.worker);
        }
        let known = self.by_rank.iter().position(|(id, _)| *id == cache);
        let at = known.unwrap_or_else(|| {
            self.by_rank.push((cache, Found::default()));
            self.by_rank.len() - 1
        });
        &mut self.by_rank[at].1
    }
}
