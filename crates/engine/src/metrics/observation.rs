//! What is measured, as the step loop sees it.

use std::time::Duration;

use crate::request::FinishReason;

/// How a choice ended, in vLLM's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Stop,
    Length,
    Abort,
    Error,
}

impl Outcome {
    pub(super) const ALL: [(Self, &'static str); 4] = [
        (Self::Stop, "stop"),
        (Self::Length, "length"),
        (Self::Abort, "abort"),
        (Self::Error, "error"),
    ];
}

impl From<FinishReason> for Outcome {
    fn from(reason: FinishReason) -> Self {
        match reason {
            FinishReason::Stop => Self::Stop,
            FinishReason::Length => Self::Length,
        }
    }
}

/// The life of a choice, for the histograms.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Life {
    pub(crate) prompt_tokens: usize,
    pub(crate) generated: usize,
    pub(crate) preemptions: usize,
    pub(crate) queued: Option<Duration>,
    pub(crate) prefill: Option<Duration>,
    pub(crate) decode: Option<Duration>,
    pub(crate) total: Duration,
}

/// How full the engine is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Occupancy {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    pub(crate) deferred: usize,
    pub(crate) held_blocks: usize,
    pub(crate) blocks: usize,
}
