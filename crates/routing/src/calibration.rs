//! Predicted against reported: how far our belief about a worker's cache can be trusted.
//!
//! Every answer of a vLLM-like worker says how much of its prompt came from the cache. Compared with what we
//! predicted, that closes the loop:
//!
//! ```text
//! trust = (sum of min(reported, predicted) + prior) / (sum of predicted + prior)     sums fade by 5 % an answer
//! ```
//!
//! A worker that was restarted, has prefix caching switched off, or is shared with others reports less than we
//! predict; its trust falls within a few answers and with it the pull of its supposed cache. It recovers the same
//! way. What was reported beyond the prediction is luck and counted apart.
//!
//! ```
//! use forespeak_routing::calibration::Calibration;
//!
//! let mut worker = Calibration::default();
//! assert_eq!(worker.trust(), 1.0);
//! for _ in 0..20 {
//!     worker.observe(8_000, 0, 16); // we promised 8,000 cached tokens, it found none
//! }
//! assert!(worker.trust() < 0.1);
//! assert!(worker.is_suspect());
//! ```

use serde::Serialize;

/// What an answer leaves of the older ones: the last twenty or so decide.
const FADE: f64 = 0.95;

/// Predicted tokens believed before anything was reported: about one chat, so that one odd answer is not a verdict.
const PRIOR_TOKENS: f64 = 4_096.0;

/// Below this a worker's cache is not where we think it is, and somebody should look.
const SUSPECT: f64 = 0.5;

/// The record of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Calibration {
    predicted: f64,
    confirmed: f64,
    surplus: f64,
    answers: u64,
    within_a_block: u64,
}

impl Calibration {
    /// Takes in one answer: cached tokens as predicted and as reported, and the worker's block size.
    pub fn observe(&mut self, predicted_tokens: u64, reported_tokens: u64, block_tokens: u32) {
        self.answers += 1;
        if predicted_tokens.abs_diff(reported_tokens) <= u64::from(block_tokens) {
            self.within_a_block += 1;
        }
        self.predicted = self.predicted * FADE + predicted_tokens as f64;
        self.confirmed = self.confirmed * FADE + predicted_tokens.min(reported_tokens) as f64;
        self.surplus =
            self.surplus * FADE + reported_tokens.saturating_sub(predicted_tokens) as f64;
    }

    /// Share of a prediction to count on, from 0 to 1.
    pub fn trust(&self) -> f64 {
        (self.confirmed + PRIOR_TOKENS) / (self.predicted + PRIOR_TOKENS)
    }

    /// Whether predictions for this worker are mostly wrong: worth a log line and a metric.
    pub fn is_suspect(&self) -> bool {
        self.trust() < SUSPECT
    }

    /// Share of answers whose report was within one block of the prediction.
    pub fn exact_share(&self) -> f64 {
        if self.answers == 0 {
            1.0
        } else {
            self.within_a_block as f64 / self.answers as f64
        }
    }

    /// Cached tokens nobody predicted, as a multiple of those predicted: others fill this cache, too.
    pub fn surplus_share(&self) -> f64 {
        self.surplus / (self.predicted + PRIOR_TOKENS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_recovers_when_predictions_come_true_again() {
        let mut worker = Calibration::default();
        (0..20).for_each(|_| worker.observe(8_000, 0, 16));
        (0..60).for_each(|_| worker.observe(8_000, 8_000, 16));
        assert!(worker.trust() > 0.9, "{}", worker.trust());
    }

    #[test]
    fn one_odd_answer_is_no_verdict() {
        let mut worker = Calibration::default();
        worker.observe(2_000, 0, 16);
        assert!(!worker.is_suspect());
    }

    #[test]
    fn luck_does_not_raise_trust() {
        let mut worker = Calibration::default();
        (0..20).for_each(|_| worker.observe(1_000, 9_000, 16));
        assert_eq!(worker.trust(), 1.0);
        assert!(worker.surplus_share() > 1.0);
        assert_eq!(worker.exact_share(), 0.0);
    }
}
