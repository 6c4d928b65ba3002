//! Connections that wait for their next request.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::wire::Wire;
use crate::server::current_lane;

/// How long a connection may wait. Servers hang up on idle ones after 5 s (vLLM's) and more; a little less
/// spares us the failed try.
const KEEP_IDLE: Duration = Duration::from_secs(4);

/// Connections that wait for one worker. As many as it was ever sent requests at a time, within reason.
const MAX_IDLE_PER_WORKER: usize = 1024;

/// The idle connections of all workers, by their addresses. Those of one lane are of no use in another.
#[derive(Default)]
pub(super) struct IdleWires {
    by_lane: Mutex<Vec<Shelves>>,
}

#[derive(Default)]
struct Shelves {
    by_address: HashMap<Box<str>, Vec<(Wire, Instant)>>,
    swept: Option<Instant>,
}

impl IdleWires {
    /// The connection to this address that was last in use, if one is still good.
    pub(super) fn take(&self, address: &str) -> Option<Wire> {
        let now = Instant::now();
        let lane = current_lane();
        loop {
            let (mut wire, since) = {
                let mut by_lane = self.by_lane();
                by_lane.get_mut(lane)?.by_address.get_mut(address)?.pop()?
            };
            if now.saturating_duration_since(since) < KEEP_IDLE && wire.is_reusable() {
                return Some(wire);
            }
        }
    }

    /// Keeps a connection for the next request, if it can carry one.
    pub(super) fn put(&self, address: &str, mut wire: Wire) {
        if !wire.is_reusable() {
            return;
        }
        let now = Instant::now();
        let lane = current_lane();
        let mut by_lane = self.by_lane();
        if by_lane.len() <= lane {
            by_lane.resize_with(lane + 1, Shelves::default);
        }
        let Some(shelves) = by_lane.get_mut(lane) else {
            return;
        };
        // Nobody else looks after the connections to workers that get no requests any more.
        let swept = shelves.swept.get_or_insert(now);
        let stale = if now.saturating_duration_since(*swept) >= KEEP_IDLE {
            *swept = now;
            shelves.take_stale(now)
        } else {
            Vec::new()
        };
        if let Some(shelf) = shelves.by_address.get_mut(address) {
            if shelf.len() < MAX_IDLE_PER_WORKER {
                shelf.push((wire, now));
            }
        } else {
            let shelf = vec![(wire, now)];
            shelves.by_address.insert(address.into(), shelf);
        }
        drop(by_lane);
        // Closing takes a system call each; nobody waits for the lock meanwhile.
        drop(stale);
    }

    fn by_lane(&self) -> MutexGuard<'_, Vec<Shelves>> {
        self.by_lane.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelves {
    fn take_stale(&mut self, now: Instant) -> Vec<(Wire, Instant)> {
        let is_stale = |since: Instant| now.saturating_duration_since(since) >= KEEP_IDLE;
        let mut stale = Vec::new();
        self.by_address.retain(|_, shelf| {
            let fresh = shelf.partition_point(|(_, since)| is_stale(*since));
            stale.extend(shelf.drain(..fresh));
            !shelf.is_empty()
        });
        stale
    }
}
