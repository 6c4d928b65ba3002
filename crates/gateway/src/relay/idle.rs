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
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    by_lane: Vec<Shelves>,
    swept: Option<Instant>,
}

#[derive(Default)]
struct Shelves {
    by_address: HashMap<Box<str>, Vec<(Wire, Instant)>>,
}

impl IdleWires {
    /// The connection to this address that was last in use, if one is still good.
    pub(super) fn take(&self, address: &str) -> Option<Wire> {
        let now = Instant::now();
        let lane = current_lane();
        loop {
            let (mut wire, since) = {
                let mut kept = self.kept();
                let shelves = kept.by_lane.get_mut(lane)?;
                shelves.by_address.get_mut(address)?.pop()?
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
        let mut kept = self.kept();
        // Nobody else looks after the connections to workers that get no requests any more, or of lanes that carry none.
        let stale = kept.take_stale(now);
        if kept.by_lane.len() <= lane {
            kept.by_lane.resize_with(lane + 1, Shelves::default);
        }
        let Some(shelves) = kept.by_lane.get_mut(lane) else {
            return;
        };
        if let Some(shelf) = shelves.by_address.get_mut(address) {
            if shelf.len() < MAX_IDLE_PER_WORKER {
                shelf.push((wire, now));
            }
        } else {
            let shelf = vec![(wire, now)];
            shelves.by_address.insert(address.into(), shelf);
        }
        drop(kept);
        // Closing takes a system call each; nobody waits for the lock meanwhile.
        drop(stale);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// What has waited too long, in all lanes; nothing if they were swept a moment ago.
    fn take_stale(&mut self, now: Instant) -> Vec<(Wire, Instant)> {
        let swept = self.swept.get_or_insert(now);
        if now.saturating_duration_since(*swept) < KEEP_IDLE {
            return Vec::new();
        }
        *swept = now;
        let lanes = self.by_lane.iter_mut();
        lanes.flat_map(|shelves| shelves.take_stale(now)).collect()
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
