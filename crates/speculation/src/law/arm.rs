//! What one sequence could draft: what it brings, and what it takes to begin.

use super::Evidence;
use crate::acceptance::{MAX_DEPTH, Survival};
use crate::source::Source;

/// Tokens that the draft model has always to read: those that it guessed wrong, and the one behind.
const ALWAYS: usize = 2;

/// What one sequence could draft.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arm {
    /// Chance that each position is drafted and accepted.
    pub survival: Survival,
    /// Chance that a draft that is planned long enough goes on to the next position; 1 for drafters that never
    /// stop of themselves.
    pub goes_on: f64,
    /// Most tokens.
    pub limit: usize,
    /// Whether drafting takes passes of the draft model.
    pub runs_a_model: bool,
    /// Seconds before the first draft: what the draft model has to read.
    pub entry: f64,
    /// What of that is to be paid in a step with a draft.
    pub instalment: f64,
}

impl Arm {
    /// From what was measured.
    pub(super) fn new(evidence: &Evidence, id: u64, source: Source, limit: usize) -> Self {
        Self {
            entry: 0.0,
            instalment: 0.0,
            survival: evidence.acceptance.survival(id, source),
            goes_on: evidence.acceptance.goes_on(source),
            limit: limit.min(MAX_DEPTH),
            runs_a_model: source.runs_a_model(),
        }
    }

    /// Nothing can be drafted.
    pub(super) fn none() -> Self {
        Self::geometric(0.0, 0)
    }

    /// The same behind `tokens` that the draft model has not read, which is paid over so many drafts.
    pub(super) fn behind(self, evidence: &Evidence, tokens: usize, paid_over: f64) -> Self {
        if !self.runs_a_model || tokens <= ALWAYS {
            return self;
        }
        let entry = evidence.costs.catch_up(tokens);
        Self {
            entry,
            instalment: entry / paid_over,
            ..self
        }
    }

    /// The same with nothing to read.
    pub(super) fn begun(self) -> Self {
        Self {
            entry: 0.0,
            instalment: 0.0,
            ..self
        }
    }

    /// An arm of the draft model whose every position is accepted with the same chance.
    pub fn geometric(chance: f64, limit: usize) -> Self {
        let mut survival = [0.0; MAX_DEPTH];
        let mut product = 1.0;
        for place in &mut survival {
            product *= chance;
            *place = product;
        }
        Self {
            survival,
            goes_on: 1.0,
            limit: limit.min(MAX_DEPTH),
            runs_a_model: true,
            entry: 0.0,
            instalment: 0.0,
        }
    }

    /// Rows that a draft of `depth` is expected to have.
    pub(super) fn rows(&self, depth: usize) -> f64 {
        let mut reach = 1.0;
        (0..depth)
            .map(|_| {
                reach *= self.goes_on;
                reach
            })
            .sum()
    }

    /// Expected tokens of a step with a draft of `depth`.
    pub(super) fn tokens(&self, depth: usize) -> f64 {
        1.0 + self.survival.iter().take(depth).sum::<f64>()
    }
}

pub(super) fn tokens(arms: &[Arm], depths: &[usize]) -> f64 {
    arms.iter()
        .zip(depths)
        .map(|(arm, &depth)| arm.tokens(depth))
        .sum()
}
