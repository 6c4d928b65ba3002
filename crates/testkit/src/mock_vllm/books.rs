//! What a mock has counted.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use simulator::worker::Counters;

/// Everything a mock knows about itself.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Books {
    /// When it started, in seconds since the Unix epoch.
    pub started_at: f64,
    /// Requests running.
    pub running: u32,
    /// Requests waiting.
    pub waiting: u32,
    /// Share of the KV cache that running requests use.
    pub kv_usage: f64,
    /// Requests that came to a generating route.
    pub received: u64,
    /// Answers complete by themselves.
    pub stopped: u64,
    /// Answers complete by their length.
    pub length: u64,
    /// Requests whose client left.
    pub aborted: u64,
    /// Requests that got a misdeed instead of an answer.
    pub misdeeds: u64,
    /// Steps of the engine.
    pub steps: u64,
    /// What the simulated machine counts.
    pub machine: Counters,
    /// From a request's arrival to its first token.
    pub ttft: Timing,
    /// From its arrival to its admission.
    pub queue: Timing,
    /// From its admission to its first token.
    pub prefill: Timing,
    /// Prompt tokens that finished requests had to compute.
    pub computed_tokens: u64,
    /// From its arrival to its end.
    pub end_to_end: Timing,
}

/// A histogram of which only sum and count are kept.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Timing {
    /// In seconds.
    pub sum: f64,
    /// How many.
    pub count: u64,
}

impl Timing {
    pub(super) fn observe(&mut self, time: Duration) {
        self.sum += time.as_secs_f64();
        self.count += 1;
    }
}

/// Books that the driver writes and everybody reads.
#[derive(Clone, Default)]
pub(super) struct SharedBooks(Arc<Mutex<Books>>);

impl SharedBooks {
    pub(super) fn read(&self) -> Books {
        self.write(|books| *books)
    }

    pub(super) fn write<T>(&self, work: impl FnOnce(&mut Books) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
