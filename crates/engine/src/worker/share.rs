//! Between the step loop and the block store: who asks, who waits, what is offered.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use model::BLOCK_TOKENS;

use super::Worker;
use crate::blocks::{BlockHash, KvEvent};
use crate::metrics::Rejection;
use crate::scheduler::SeqId;
use crate::store::{Ask, Clerk, Loaded, Mean, Moved};

/// Fewer missing blocks are computed faster than anybody can be asked.
const FEWEST_BLOCKS: usize = 2;

/// The shortest and the longest that a prompt waits for its blocks. In between it waits for as long as computing
/// them takes: so the worst that a store can do is to double that.
const WAIT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// Rows of a step whose time says what a prompt token costs; in smaller steps the weights' way from memory counts
/// more than the rows.
const TELLING_ROWS: usize = 32;

/// The worker's part of sharing.
pub(super) struct Share {
    clerk: Clerk,
    /// What a prompt token takes.
    token: Mean,
    waiting: HashMap<SeqId, Waiting>,
}

/// A sequence that waits for blocks.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    /// The first block that it lacks.
    first: BlockHash,
    /// Whether it asked for it itself, or waits for what another one gets that lacks the same.
    asked: bool,
    deadline: Instant,
}

impl Share {
    pub(super) fn new(clerk: Clerk) -> Self {
        Self {
            clerk,
            token: Mean::default(),
            waiting: HashMap::new(),
        }
    }

    /// Nobody is left who waits.
    pub(super) fn forget_all(&mut self) {
        self.waiting.clear();
    }
}

impl Worker {
    /// Lets a new sequence wait for blocks that it lacks and somebody may have.
    pub(super) fn ask_store(&mut self, id: SeqId) {
        let Some(share) = &mut self.share else {
            return;
        };
        let Some((from, names)) = self.scheduler.uncached(id) else {
            return;
        };
        if names.len() < FEWEST_BLOCKS {
            return;
        }
        let Some(&first) = names.first() else {
            return;
        };
        let compute = share.token.of(names.len() * BLOCK_TOKENS);
        let deadline = Instant::now() + compute.map_or(WAIT.1, |time| time.clamp(WAIT.0, WAIT.1));
        let mut asking = share.waiting.values().filter(|other| other.asked);
        if asking.any(|other| other.first == first) {
            let waiting = Waiting {
                first,
                asked: false,
                deadline,
            };
            share.waiting.insert(id, waiting);
            self.scheduler.set_aside(id);
            return;
        }
        let ask = Ask {
            id,
            from,
            names: names.to_vec(),
            token: share.token.of(1),
            deadline,
        };
        if share.clerk.ask(ask) {
            let waiting = Waiting {
                first,
                asked: true,
                deadline,
            };
            share.waiting.insert(id, waiting);
            self.scheduler.set_aside(id);
        }
    }

    /// Until when somebody waits, if nobody can run.
    pub(super) fn stalled_until(&self) -> Option<Instant> {
        let waiting = &self.share.as_ref()?.waiting;
        let first = waiting.values().map(|one| one.deadline).min();
        first.filter(|_| self.scheduler.is_stalled())
    }

    /// Brings those back who have waited long enough.
    pub(super) fn end_overdue(&mut self) {
        let Some(share) = &mut self.share else {
            return;
        };
        if share.waiting.is_empty() {
            return;
        }
        let now = Instant::now();
        let scheduler = &mut self.scheduler;
        share.waiting.retain(|id, waiting| {
            if waiting.deadline <= now {
                scheduler.bring_back(*id);
            }
            waiting.deadline > now
        });
    }

    /// The sequence is gone: nobody waits for its blocks.
    pub(super) fn stop_waiting(&mut self, id: SeqId) {
        let Some(share) = &mut self.share else {
            return;
        };
        if let Some(gone) = share.waiting.remove(&id) {
            self.look_again(gone, true);
        }
    }

    /// Those who waited for what another one gets go on, or ask for what they still lack if there is hope for it.
    fn look_again(&mut self, done: Waiting, hope: bool) {
        let Some(share) = &mut self.share else {
            return;
        };
        let others = share.waiting.iter();
        let others = others.filter(|(_, other)| done.asked && !other.asked);
        let others = others.filter(|(_, other)| other.first == done.first);
        let mut others: Vec<SeqId> = others.map(|(id, _)| *id).collect();
        others.sort_unstable();
        for id in others {
            if let Some(share) = &mut self.share {
                share.waiting.remove(&id);
            }
            self.scheduler.bring_back(id);
            if hope {
                self.ask_store(id);
            }
        }
    }

    /// Puts loaded blocks into the cache, for the sequence that asked and for everybody else.
    pub(super) fn take_loaded(&mut self, loaded: Loaded) {
        let Some(share) = &mut self.share else {
            return;
        };
        let metrics = self.metrics.store();
        let Some(waiting) = share.waiting.remove(&loaded.id) else {
            metrics.rejected(Rejection::Late, loaded.blocks.len());
            return;
        };
        let names = loaded.names.get(..loaded.blocks.len());
        let names = names.filter(|names| !names.is_empty());
        let shelf = names.and_then(|n| self.scheduler.make_room(loaded.id, loaded.from, n));
        let mut found = false;
        if let Some(shelf) = shelf {
            let began = Instant::now();
            // Room was made by evicting others, whose contents are still there.
            self.offer_turnover();
            let wanted = loaded.blocks.get(shelf.skip..).unwrap_or_default();
            let mut filled = 0;
            for (&block, bytes) in shelf.blocks().iter().zip(wanted) {
                if let Err(error) = self.executor.import(block, bytes) {
                    tracing::error!(%error, "a loaded KV block is computed again");
                    break;
                }
                filled += 1;
            }
            found = filled > 0;
            let metrics = self.metrics.store();
            metrics.rejected(Rejection::NoRoom, wanted.len() - filled);
            self.scheduler.shelve(shelf, filled);
            // They came out of the store: no need to offer them again.
            self.scheduler.pool.forget_named();
            let took = loaded.took + began.elapsed();
            let token = self.share.as_ref().map(|share| share.token);
            if let Some(compute) = token.and_then(|token| token.of(filled * BLOCK_TOKENS)) {
                metrics.saved(compute.saturating_sub(took));
            }
        }
        self.scheduler.bring_back(loaded.id);
        self.look_again(waiting, found);
    }

    /// Tells listeners what can be loaded, and what no longer.
    pub(super) fn tell_moved(&mut self, moved: Moved) {
        let Moved {
            tier,
            kept,
            dropped,
        } = moved;
        let pool = &mut self.scheduler.pool;
        if !kept.is_empty() {
            pool.tell(KvEvent::Kept { hashes: kept, tier });
        }
        if !dropped.is_empty() {
            pool.tell(KvEvent::Lost {
                hashes: dropped,
                tier,
            });
        }
    }

    /// Offers what was computed and what was evicted. Must be called before anything is overwritten: between planning
    /// and executing, and after what was executed is settled.
    pub(super) fn offer_turnover(&mut self) {
        let Some(share) = &self.share else {
            return;
        };
        let turnover = self.scheduler.pool.take_turnover();
        let executor = &self.executor;
        if share.clerk.wants_computed() {
            for (name, block) in turnover.named {
                share
                    .clerk
                    .offer_computed(name, |out| executor.export(block, out));
            }
        }
        for (name, block) in turnover.evicted {
            share
                .clerk
                .offer_evicted(name, |out| executor.export(block, out));
        }
    }

    /// Learns what a prompt token takes.
    pub(super) fn time_step(&mut self, rows: usize, took: Duration) {
        if let Some(share) = &mut self.share
            && rows >= TELLING_ROWS
        {
            share.token.note(took, rows);
        }
    }
}
