//! Whether a worker with requests in hand gets anywhere.

use std::time::{Duration, Instant};

use crate::observe::Observation;

/// When a worker's counters last moved.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    work_done: Option<f64>,
    /// Since when nothing moved although requests were running.
    still_since: Option<Instant>,
}

impl Progress {
    pub(super) fn observed(&mut self, observation: &Observation, now: Instant) {
        let work_done = observation.counters.work_done();
        let moved = work_done.is_none() || work_done != self.work_done;
        let busy = observation.running.is_some_and(|running| running > 0);
        self.work_done = work_done;
        self.still_since = match self.still_since {
            _ if moved || !busy => busy.then_some(now).filter(|_| work_done.is_some()),
            Some(since) => Some(since),
            None => Some(now),
        };
    }

    pub(super) fn moved(&mut self, now: Instant) {
        if self.still_since.is_some() {
            self.still_since = Some(now);
        }
    }

    /// How long nothing has moved that should.
    pub(super) fn standstill(&self, now: Instant) -> Option<Duration> {
        self.still_since
            .map(|since| now.saturating_duration_since(since))
    }
}
