//! What a worker's subscribers have seen. Counted here, named and exported by the gateway.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Lost;

/// Counters of one worker's KV events, over all its ranks.
#[derive(Debug, Default)]
pub struct EventCounters {
    connected: AtomicU32,
    connections: AtomicU64,
    batches: AtomicU64,
    replays: AtomicU64,
    replays_failed: AtomicU64,
    unreadable: AtomicU64,
    losses: AtomicU64,
    missed: AtomicU64,
}

/// A reading of [`EventCounters`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventCounts {
    /// Ranks connected now.
    pub connected: u32,
    /// Connections made.
    pub connections: u64,
    /// Messages taken in.
    pub batches: u64,
    /// Replays asked for.
    pub replays: u64,
    /// Replays that failed.
    pub replays_failed: u64,
    /// Messages that could not be read.
    pub unreadable: u64,
    /// Times that exact knowledge was lost.
    pub losses: u64,
    /// Messages missed for good.
    pub missed: u64,
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

impl EventCounters {
    /// The counters now.
    pub fn read(&self) -> EventCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EventCounts {
            connected: self.connected.load(Ordering::Relaxed),
            connections: get(&self.connections),
            batches: get(&self.batches),
            replays: get(&self.replays),
            replays_failed: get(&self.replays_failed),
            unreadable: get(&self.unreadable),
            losses: get(&self.losses),
            missed: get(&self.missed),
        }
    }

    pub(super) fn batch(&self) {
        add(&self.batches, 1);
    }

    pub(super) fn replay(&self) {
        add(&self.replays, 1);
    }

    pub(super) fn replay_failed(&self) {
        add(&self.replays_failed, 1);
    }

    pub(super) fn lost(&self, lost: Lost) {
        add(&self.losses, 1);
        add(&self.missed, lost.messages());
        if lost == Lost::Unreadable {
            add(&self.unreadable, 1);
        }
    }

    /// Counts a connection for as long as the result lives.
    pub(super) fn connection(&self) -> Connected<'_> {
        add(&self.connections, 1);
        self.connected.fetch_add(1, Ordering::Relaxed);
        Connected(self)
    }
}

pub(super) struct Connected<'a>(&'a EventCounters);

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.connected.fetch_sub(1, Ordering::Relaxed);
    }
}
