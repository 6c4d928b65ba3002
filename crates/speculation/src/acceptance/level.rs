//! Rejections seen over rejections expected, decayed with every draft.

use std::time::Duration;

/// How fast a level forgets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decay {
    /// Drafts after which half is replaced.
    pub(super) drafts: f64,
    /// Seconds after which half is discounted when the next draft comes. While steps only probe, drafts are
    /// rare and what they replace is old.
    pub(super) seconds: f64,
}

/// Time discounts at most so many half-lives for one draft: a single one must not decide alone where steps
/// are slow.
const MOST_HALF_LIVES: f64 = 0.25;

/// A decayed ratio.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Level {
    observed: f64,
    expected: f64,
    latest: Duration,
}

impl Level {
    /// Counts one draft.
    pub(super) fn observe(&mut self, now: Duration, observed: f64, expected: f64, decay: Decay) {
        let passed = now.saturating_sub(self.latest).as_secs_f64();
        let by_time = (passed / decay.seconds).min(MOST_HALF_LIVES);
        let keep = (-1.0 / decay.drafts - by_time).exp2();
        self.latest = now;
        self.observed = self.observed * keep + observed;
        self.expected = self.expected * keep + expected;
    }

    /// The ratio, drawn towards `usual` as if `weight` rejections had been expected and seen at that rate.
    pub(super) fn ratio(&self, usual: f64, weight: f64) -> f64 {
        (self.observed + weight * usual) / (self.expected + weight)
    }
}
