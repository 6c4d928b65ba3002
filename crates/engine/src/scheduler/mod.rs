//! What the next step computes.
//!
//! Pure planning: no clock, no channels, no arithmetic. A step is filled in this order:
//! 1. one row for every running sequence that only needs one (it decodes). If it needs a block and
//!    none is left, the running sequence of the lowest class and latest arrival is *preempted*: it loses
//!    its blocks and waits to be computed again;
//! 2. chunks of the prompts that are being read, best rank first, while rows are left;
//! 3. waiting sequences, best rank first, while rows, places and blocks are left. Cached blocks stand
//!    for the start of their prompt; one whose prompt a running sequence is just computing is passed
//!    over until it finds those blocks in the cache.
//!
//! Why this always makes progress: a sequence is admitted only with blocks for all of its tokens, so
//! only decoding asks for more; whoever asks can take from everybody of worse rank; and the best-ranked
//! sequence alone always fits, because longer ones were refused at the door.
//!
//! Admission leaves a free block for each running sequence, so that a preempted sequence does not come
//! back only to be preempted in the next step.

mod loading;
mod loan;
mod plan;
mod sequence;

use std::collections::BTreeSet;

use foldhash::{HashMap, HashMapExt};
use model::BLOCK_TOKENS;

use crate::blocks::BlockPool;
use crate::request::Priority;
use loan::Ended;
pub(crate) use loan::Loan;
pub(crate) use plan::{StepPlan, Work};
use sequence::Rank;
pub(crate) use sequence::{NewSequence, SeqId, Sequence};

/// Bounds of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Most sequences.
    pub(crate) sequences: usize,
    /// Most rows; not smaller than `sequences`.
    pub(crate) rows: usize,
}

/// All sequences and their blocks.
#[derive(Debug)]
pub(crate) struct Scheduler {
    limits: Limits,
    pub(crate) pool: BlockPool,
    sequences: HashMap<SeqId, Sequence>,
    running: BTreeSet<Rank>,
    waiting: BTreeSet<Rank>,
    held_back: usize,
    loading: usize,
    next_id: u64,
    /// Loans of blocks for drafts that have ended.
    ended: Ended,
}

impl Scheduler {
    pub(crate) fn new(limits: Limits, pool: BlockPool) -> Self {
        Self {
            limits,
            pool,
            sequences: HashMap::new(),
            running: BTreeSet::new(),
            waiting: BTreeSet::new(),
            held_back: 0,
            loading: 0,
            next_id: 0,
            ended: Ended::default(),
        }
    }

    /// Adds `count` sequences with the same prompt. The first one computes it, the others wait for
    /// that and then find its blocks in the cache.
    pub(crate) fn add(&mut self, new: NewSequence, count: usize) -> Vec<SeqId> {
        let ids: Vec<SeqId> = (self.next_id..).take(count).map(SeqId).collect();
        self.next_id += count as u64;
        for (index, &id) in ids.iter().enumerate() {
            let rank = Rank {
                priority: new.priority,
                id,
            };
            let mut sequence = Sequence::new(rank, new.clone());
            if index == 0 {
                sequence.followers = ids[1..].to_vec();
                self.waiting.insert(rank);
            } else {
                sequence.waits_for_leader = true;
                sequence.reads_cache = true;
                self.held_back += 1;
            }
            self.sequences.insert(id, sequence);
        }
        ids
    }

    /// Takes a sequence out and frees its blocks, whatever it was doing.
    pub(crate) fn remove(&mut self, id: SeqId) {
        let Some(mut sequence) = self.sequences.remove(&id) else {
            return;
        };
        self.running.remove(&sequence.rank);
        self.waiting.remove(&sequence.rank);
        self.held_back -= usize::from(sequence.waits_for_leader);
        self.loading -= usize::from(sequence.waits_for_blocks);
        self.pool.release(&mut sequence.table);
        self.let_go(&sequence.followers);
    }

    /// The sequence, while it is here.
    pub(crate) fn sequence(&self, id: SeqId) -> Option<&Sequence> {
        self.sequences.get(&id)
    }

    /// Counts `rows` more rows of a sequence as computed and appends the tokens that were chosen.
    pub(crate) fn commit(&mut self, id: SeqId, rows: usize, chosen: &[u32]) {
        let Some(sequence) = self.sequences.get_mut(&id) else {
            return;
        };
        sequence.computed += rows;
        sequence.tokens.extend_from_slice(chosen);
        sequence.chain.extend(&sequence.tokens);
        debug_assert!(sequence.computed <= sequence.tokens.len());
        let full = sequence.computed / BLOCK_TOKENS;
        if full > sequence.published {
            self.pool.publish(
                &sequence.table,
                sequence.published..full,
                &sequence.chain,
                &sequence.tokens,
            );
            sequence.published = full;
        }
        if sequence.computed >= sequence.prompt_len {
            sequence.reads_cache = true;
            let followers = std::mem::take(&mut sequence.followers);
            self.let_go(&followers);
        }
    }

    /// Rows that a planned step has left.
    pub(crate) fn rows_left(&self, plan: &StepPlan) -> usize {
        let planned: usize = plan.work.iter().map(|work| work.rows.len()).sum();
        self.limits.rows.saturating_sub(planned)
    }

    /// Positions behind a sequence's last token that have a block, or could have one without taking it
    /// from anybody.
    pub(crate) fn room_ahead(&self, id: SeqId) -> usize {
        self.sequences.get(&id).map_or(0, |sequence| {
            let spare = self.pool.available() * BLOCK_TOKENS;
            (sequence.table.capacity() + spare).saturating_sub(sequence.tokens.len())
        })
    }

    /// Lends a sequence blocks for `wanted` positions behind its last token, or for as many as there are. Nobody
    /// loses a block for it.
    pub(crate) fn lend(&mut self, id: SeqId, wanted: usize) -> Option<Loan> {
        let sequence = self.sequences.get_mut(&id)?;
        let blocks = (sequence.tokens.len() + wanted).div_ceil(BLOCK_TOKENS);
        let more = blocks.saturating_sub(sequence.table.len());
        if more > 0 {
            let affordable = more.min(self.pool.available());
            // Never more than are there.
            let _ = self.pool.allocate(&mut sequence.table, affordable);
        }
        let room = sequence.table.capacity();
        let room = room.saturating_sub(sequence.tokens.len()).min(wanted);
        Some(self.ended.loan(id, room))
    }

    /// Takes back the blocks of ended loans that their sequences do not need for their tokens: whatever was
    /// computed behind them is void.
    fn take_back(&mut self) {
        for id in self.ended.take() {
            if let Some(sequence) = self.sequences.get_mut(&id) {
                let needed = sequence.tokens.len().div_ceil(BLOCK_TOKENS);
                self.pool.shrink(&mut sequence.table, needed);
            }
        }
    }

    /// Sequences in the steps.
    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    /// Sequences that wait for room.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Sequences that wait for another one to compute their prompt, or for blocks to be loaded.
    pub(crate) fn held_back(&self) -> usize {
        self.held_back + self.loading
    }

    /// Whether everybody who is here waits for blocks.
    pub(crate) fn is_stalled(&self) -> bool {
        self.loading > 0 && self.running.is_empty() && self.waiting.is_empty()
    }

    /// Whether there is nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.sequences.is_empty()
    }

    /// The sequence that would be admitted next.
    pub(crate) fn first_waiting(&self) -> Option<SeqId> {
        self.waiting.first().map(|rank| rank.id)
    }

    fn let_go(&mut self, followers: &[SeqId]) {
        for id in followers {
            if let Some(follower) = self.sequences.get_mut(id)
                && follower.waits_for_leader
            {
                follower.waits_for_leader = false;
                self.held_back -= 1;
                self.waiting.insert(follower.rank);
            }
        }
    }

    fn worst_running_below(&self, class: Priority) -> impl Iterator<Item = Rank> + '_ {
        self.running
            .iter()
            .rev()
            .copied()
            .take_while(move |rank| rank.priority > class)
    }
}

#[cfg(test)]
mod tests;
