//! How a mock misbehaves.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// What one request gets instead of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misdeed {
    /// This status with an error body; 429 and 503 come with a `retry-after`.
    Status(u16),
    /// The connection closes before a byte of the answer.
    Reset,
    /// Nothing, ever; the connection stays open.
    Hang,
    /// The connection closes after so many tokens.
    CutAfter {
        /// Of the answer.
        tokens: usize,
    },
    /// No more tokens come after so many; the connection stays open.
    StallAfter {
        /// Of the answer.
        tokens: usize,
    },
    /// An error event after so many tokens, then a proper end, as vLLM does when its engine fails.
    ErrorEventAfter {
        /// Of the answer.
        tokens: usize,
    },
}

/// What `/metrics` gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsFault {
    /// The truth.
    #[default]
    None,
    /// Bytes that are no metrics.
    Garbage,
    /// A page without end.
    Huge,
    /// Nothing, ever.
    Hang,
    /// A 500.
    Failing,
}

/// What becomes of KV events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventFault {
    /// They are published and kept for replay.
    #[default]
    None,
    /// Lost on their way: a replay brings them.
    Lost,
    /// Gone for good: neither published nor kept, but numbered.
    Forgotten,
}

/// What is wrong with a mock until somebody says otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// The machine's speed: 0.1 takes ten times as long.
    pub speed: f64,
    /// The engine makes no step; everything else goes on.
    pub wedged: bool,
    /// Connections are accepted and nothing is ever answered on them, probes included.
    pub deaf: bool,
    /// It says that it is going.
    pub draining: bool,
    /// What a share of the generating requests gets, by chance.
    pub misdeed: Option<(f64, Misdeed)>,
    /// What `/metrics` gives.
    pub metrics: MetricsFault,
    /// What becomes of KV events.
    pub events: EventFault,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            speed: 1.0,
            wedged: false,
            deaf: false,
            draining: false,
            misdeed: None,
            metrics: MetricsFault::None,
            events: EventFault::None,
        }
    }
}

/// Misdeeds for the next requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Script(Arc<Mutex<VecDeque<Misdeed>>>);

impl Script {
    pub(super) fn extend(&self, misdeeds: impl IntoIterator<Item = Misdeed>) {
        self.lock().extend(misdeeds);
    }

    pub(super) fn next(&self) -> Option<Misdeed> {
        self.lock().pop_front()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Misdeed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
