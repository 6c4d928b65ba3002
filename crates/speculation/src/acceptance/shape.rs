//! How acceptance changes with the position in a draft: what belongs to the drafter.
//!
//! A draft model is as sure at one position as at the one before, so a position that was hardly reached is taken for its
//! neighbour. Not so what was looked up: where a text has gone along for six tokens the next ones were nearly certain, and the
//! few drafts that got there say little of others. There every position is held to what lookups of its class are worth as a
//! rule; a lucky copy else has the next drafts go on for sixteen tokens, of which one holds.

use super::MAX_DEPTH;
use crate::source::Source;

/// Drafts that reach a position before half of what it knew is replaced.
const HALF_LIFE: f64 = 150.0;

/// Drafts' worth of trust in what is expected of a position: for a draft model that is the position before, for a lookup (and a
/// draft model's first position) the prior.
const EXPECTED_WEIGHT: f64 = 4.0;

/// No position is ever expected to be certain: a level of rejections can only multiply what is above 0.
const CERTAIN: f64 = 0.98;

/// Decayed counts of each position.
#[derive(Debug, Clone, Default)]
pub(super) struct Shape {
    reached: [f64; MAX_DEPTH],
    accepted: [f64; MAX_DEPTH],
}

impl Shape {
    /// Learns one draft, `weight` (at most 1) of it.
    pub(super) fn observe(&mut self, drafted: usize, accepted: usize, weight: f64) {
        let keep = (-weight / HALF_LIFE).exp2();
        let reached = drafted.min(accepted + 1);
        let counts = self.reached.iter_mut().zip(&mut self.accepted);
        for (position, (tries, successes)) in counts.take(reached).enumerate() {
            *tries = *tries * keep + weight;
            *successes = *successes * keep + weight * f64::from(u8::from(position < accepted));
        }
    }

    /// Rejections that a draft with this outcome was exposed to.
    pub(super) fn expected_rejections(
        &self,
        drafted: usize,
        accepted: usize,
        source: Source,
    ) -> f64 {
        let reached = drafted.min(accepted + 1);
        self.values(source).take(reached).map(|s| 1.0 - s).sum()
    }

    /// Chance of each position that is reached to be accepted.
    pub(super) fn values(&self, source: Source) -> impl Iterator<Item = f64> {
        let mut expected = source.prior();
        self.reached
            .iter()
            .zip(&self.accepted)
            .map(move |(reached, accepted)| {
                let value = (accepted + EXPECTED_WEIGHT * expected) / (reached + EXPECTED_WEIGHT);
                if source.runs_a_model() {
                    expected = value;
                }
                value.min(CERTAIN)
            })
    }
}
