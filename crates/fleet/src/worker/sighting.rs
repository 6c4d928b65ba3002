//! What was seen of a worker's load, and how fast it was since the time before.

use std::time::{Duration, Instant};

use crate::observe::{Observation, Rates, Smoothed};

/// What a scrape showed.
#[derive(Debug, Clone, PartialEq)]
pub struct Sighting {
    /// The page.
    pub observation: Observation,
    /// Against the page before; `None` for the first.
    pub rates: Option<Rates>,
    /// Speeds, smoothed.
    pub smoothed: Smoothed,
    /// When it was asked for: what was sent to the worker later need not be in it.
    pub asked: Instant,
    /// When it came, or what answers told of the worker's load since.
    pub at: Instant,
    /// When its counters were read: rates are taken from there.
    pub(super) counted: Instant,
}

impl Sighting {
    /// A page seen after this one, or as the first.
    pub(super) fn next(
        before: Option<&Self>,
        observation: Observation,
        asked: Instant,
        at: Instant,
    ) -> Self {
        let Some(before) = before else {
            // Its counters tell of all it did before we came: speeds to begin with.
            let so_far = Rates::since_its_start(&observation);
            return Self {
                smoothed: Smoothed::default().with(&so_far, Duration::ZERO),
                observation,
                rates: None,
                asked,
                at,
                counted: at,
            };
        };
        let elapsed = at.saturating_duration_since(before.counted);
        let rates = Rates::between(&before.observation, &observation, elapsed);
        let smoothed = before.smoothed.with(&rates, elapsed);
        Self {
            observation,
            rates: Some(rates),
            smoothed,
            asked,
            at,
            counted: at,
        }
    }
}
