//! Why a worker gets nothing new, and since when.

use std::time::Instant;

/// Why a worker is draining.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DrainReason {
    /// An operator asked for it.
    Operator,
    /// It is no longer in the configuration, the file or the DNS answer.
    Removed,
    /// It is about to be restarted.
    Recycling,
    /// It, or the cloud below it, says that it is going.
    Leaving,
}

impl DrainReason {
    /// One word, for labels and logs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Removed => "removed",
            Self::Recycling => "recycling",
            Self::Leaving => "leaving",
        }
    }
}

/// A drain in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draining {
    /// Why.
    pub reason: DrainReason,
    /// Since when.
    pub since: Instant,
}
