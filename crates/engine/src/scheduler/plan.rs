//! Filling one step.

use std::ops::{Bound, Range};

use model::BLOCK_TOKENS;

use super::sequence::Rank;
use super::{Scheduler, SeqId};

/// Sequences that are passed over in one step because another computes their prompt: enough for any burst of
/// equal prompts, and looking for them stays cheap.
const MOST_PASSED_OVER: usize = 64;

/// What a step computes, and what had to happen for it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StepPlan {
    /// Rows of each sequence in the step.
    pub(crate) work: Vec<Work>,
    /// Sequences that began (or began again) to run.
    pub(crate) admitted: Vec<Admission>,
    /// Sequences that lost their blocks.
    pub(crate) preempted: Vec<SeqId>,
}

/// One sequence's part of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) id: SeqId,
    /// Positions to compute.
    pub(crate) rows: Range<usize>,
    /// Whether the last of them is the sequence's last token, so that a next one can be chosen.
    pub(crate) reaches_end: bool,
}

/// A sequence was admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Admission {
    pub(crate) id: SeqId,
    /// Tokens that need not be computed.
    pub(crate) cached: usize,
    /// Tokens in all.
    pub(crate) tokens: usize,
    /// Not back from a preemption.
    pub(crate) first_time: bool,
}

impl Scheduler {
    /// Plans the next step. Empty only if nothing can run.
    pub(crate) fn plan(&mut self) -> StepPlan {
        self.take_back();
        let mut plan = StepPlan::default();
        self.make_room_for_a_better_class(&mut plan);
        let reclaimed = plan.preempted.len();
        let mut rows = self.limits.rows;

        for rank in self.running.iter().copied().collect::<Vec<_>>() {
            if self.missing(rank) == Some(1) && self.grow(rank, &mut plan) {
                self.put(rank, 1, &mut plan);
                rows -= 1;
            }
        }
        for rank in self.running.iter().copied().collect::<Vec<_>>() {
            if self.missing(rank).is_some_and(|missing| missing > 1) {
                rows -= self.put(rank, rows, &mut plan);
            }
        }
        let short_of_blocks = plan.preempted.len() > reclaimed;
        let mut looked_at = Bound::Unbounded;
        let mut passed_over = 0;
        while !short_of_blocks && rows > 0 && self.running.len() < self.limits.sequences {
            let next = self.waiting.range((looked_at, Bound::Unbounded)).next();
            let Some(rank) = next.copied() else {
                break;
            };
            looked_at = Bound::Excluded(rank);
            if self.is_under_way(rank) {
                passed_over += 1;
                if passed_over == MOST_PASSED_OVER {
                    break;
                }
                continue;
            }
            if !self.admit(rank, &mut plan) {
                break;
            }
            rows -= self.put(rank, rows, &mut plan);
        }
        plan
    }

    /// Whether a running sequence, of no worse class, is about to compute at least half of what this one
    /// lacks: then it waits for those blocks instead of computing them, too.
    fn is_under_way(&self, rank: Rank) -> bool {
        let Some(sequence) = self.sequences.get(&rank.id) else {
            return false;
        };
        let sharable = sequence.sharable();
        let cached = self.pool.cached_prefix(sharable).blocks;
        let missing = sequence.tokens.len().div_ceil(BLOCK_TOKENS) - cached;
        let Some(wanted) = sharable.get(cached..).filter(|w| w.len() * 2 >= missing) else {
            return false;
        };
        self.pool.is_caching()
            && !wanted.is_empty()
            && self
                .running
                .iter()
                .take_while(|leader| leader.priority <= rank.priority)
                .filter_map(|leader| self.sequences.get(&leader.id))
                .filter(|leader| leader.published <= cached)
                .any(|leader| {
                    let computing = leader.chain.hashes().get(cached..).unwrap_or_default();
                    let same = wanted.iter().zip(computing).take_while(|(a, b)| a == b);
                    same.count() * 2 >= missing
                })
    }

    /// `None` when it does not run (any more).
    fn missing(&self, rank: Rank) -> Option<usize> {
        if !self.running.contains(&rank) {
            return None;
        }
        self.sequences.get(&rank.id).map(|s| s.missing())
    }

    /// Puts up to `room` rows of a sequence into the plan and says how many.
    fn put(&mut self, rank: Rank, room: usize, plan: &mut StepPlan) -> usize {
        let Some(sequence) = self.sequences.get(&rank.id) else {
            return 0;
        };
        let rows = sequence.missing().min(room).min(sequence.max_chunk);
        if rows == 0 {
            return 0;
        }
        let end = sequence.computed + rows;
        debug_assert!(sequence.table.capacity() >= end);
        plan.work.push(Work {
            id: rank.id,
            rows: sequence.computed..end,
            reaches_end: end == sequence.tokens.len(),
        });
        rows
    }

    /// Gives a running sequence room for one more token, taking it from those of worse rank if need be.
    /// `false` if it was itself the worst, and lost what it had.
    fn grow(&mut self, rank: Rank, plan: &mut StepPlan) -> bool {
        loop {
            let Some(sequence) = self.sequences.get_mut(&rank.id) else {
                return false;
            };
            if sequence.computed < sequence.table.capacity()
                || self.pool.allocate(&mut sequence.table, 1)
            {
                return true;
            }
            let Some(worst) = self.running.last().copied() else {
                return false;
            };
            self.preempt(worst, plan);
            if worst == rank {
                return false;
            }
        }
    }

    fn preempt(&mut self, rank: Rank, plan: &mut StepPlan) {
        if let Some(sequence) = self.sequences.get_mut(&rank.id) {
            self.pool.release(&mut sequence.table);
            sequence.computed = 0;
            sequence.published = 0;
        }
        self.running.remove(&rank);
        self.waiting.insert(rank);
        plan.preempted.push(rank.id);
    }

    /// Blocks that admitting a waiting sequence takes from those available, and cached blocks it shares.
    fn blocks_to_admit(&self, rank: Rank) -> Option<(usize, usize)> {
        let sequence = self.sequences.get(&rank.id)?;
        let cached = self.pool.cached_prefix(sequence.sharable());
        let all = sequence.tokens.len().div_ceil(BLOCK_TOKENS);
        Some((all - cached.blocks + cached.idle, cached.blocks))
    }

    fn admit(&mut self, rank: Rank, plan: &mut StepPlan) -> bool {
        let Some((needed, shared)) = self.blocks_to_admit(rank) else {
            return false;
        };
        let headroom = self.running.len();
        if needed + headroom > self.pool.available() {
            return false;
        }
        let Some(sequence) = self.sequences.get_mut(&rank.id) else {
            return false;
        };
        self.pool
            .take_cached(&mut sequence.table, &sequence.chain.hashes()[..shared]);
        let fresh = sequence.tokens.len().div_ceil(BLOCK_TOKENS) - shared;
        if !self.pool.allocate(&mut sequence.table, fresh) {
            self.pool.release(&mut sequence.table);
            return false;
        }
        sequence.computed = shared * BLOCK_TOKENS;
        sequence.published = shared;
        plan.admitted.push(Admission {
            id: rank.id,
            cached: sequence.computed,
            tokens: sequence.tokens.len(),
            first_time: sequence.cached.is_none(),
        });
        sequence.cached.get_or_insert(sequence.computed);
        self.waiting.remove(&rank);
        self.running.insert(rank);
        true
    }

    /// Preempts sequences of worse classes than the first in the queue, if that lets it in. Within one
    /// class nobody is preempted for a newcomer.
    fn make_room_for_a_better_class(&mut self, plan: &mut StepPlan) {
        let Some(first) = self.waiting.first().copied() else {
            return;
        };
        if self.is_under_way(first) {
            return;
        }
        let Some((needed, _)) = self.blocks_to_admit(first) else {
            return;
        };
        let mut places = self.limits.sequences - self.running.len();
        let mut blocks = self.pool.available();
        let mut running = self.running.len();
        let mut victims = Vec::new();
        for victim in self.worst_running_below(first.priority) {
            if places > 0 && blocks >= needed + running {
                break;
            }
            // Shared blocks are counted too often here: then it takes another step to get in.
            blocks += self.sequences.get(&victim.id).map_or(0, |s| s.table.len());
            places += 1;
            running -= 1;
            victims.push(victim);
        }
        if places > 0 && blocks >= needed + running {
            for victim in victims {
                self.preempt(victim, plan);
            }
        }
    }
}
