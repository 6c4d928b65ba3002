//! How acceptance changes with the position in a draft: what belongs to the drafter.

use super::MAX_DEPTH;

/// Drafts that reach a position before half of what it knew is replaced.
const HALF_LIFE: f64 = 150.0;

/// Drafts' worth of trust in the position before (for the first position: in the prior).
const NEIGHBOUR_WEIGHT: f64 = 4.0;

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
    pub(super) fn expected_rejections(&self, drafted: usize, accepted: usize, prior: f64) -> f64 {
        let reached = drafted.min(accepted + 1);
        self.values(prior).take(reached).map(|s| 1.0 - s).sum()
    }

    pub(super) fn values(&self, prior: f64) -> impl Iterator<Item = f64> {
        let mut before = prior;
        self.reached
            .iter()
            .zip(&self.accepted)
            .map(move |(reached, accepted)| {
                before = (accepted + NEIGHBOUR_WEIGHT * before) / (reached + NEIGHBOUR_WEIGHT);
                before.min(CERTAIN)
            })
    }
}
