//! What the step that is being planned would cost, whatever is drafted in it.

use super::Evidence;
use super::arm::{Arm, tokens};
use crate::acceptance::MAX_DEPTH;
use crate::cost::StepShape;
use crate::step::Step;
use crate::worth::Worth;

/// Costs of the step that is being planned, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct StepCosts {
    /// Sequences that it is planned for.
    pub(super) sequences: usize,
    /// Target, by drafted tokens.
    verify: Vec<f64>,
    /// One pass of the draft model, by sequences in it.
    pass: Vec<f64>,
    /// Planning, where something is drafted: where nothing is for long, steps go without a plan.
    pub(super) planning: f64,
    /// How uneven steps are that should take the same, as a part of them.
    pub(super) unevenness: f64,
}

impl StepCosts {
    /// From what was measured.
    pub(super) fn new(step: &Step<'_>, evidence: &Evidence, arms: &[Arm]) -> Self {
        let sequences = step.candidates.len();
        let context = step.candidates.iter().map(|c| c.context).sum();
        let most: usize = arms.iter().map(|arm| arm.limit).sum();
        let shape = StepShape {
            sequences,
            drafted: 0,
            context,
        };
        let reach = evidence.costs.reach(sequences);
        let by_model = arms.iter().filter(|arm| arm.runs_a_model).count();
        let share = context / sequences.max(1);
        Self {
            sequences,
            verify: evidence
                .costs
                .verify_curve(&shape, most.min(step.row_budget).min(reach)),
            pass: (0..=by_model)
                .map(|n| evidence.costs.draft_pass(n, n * share))
                .collect(),
            planning: evidence.costs.planning(sequences),
            unevenness: evidence.costs.unevenness(),
        }
    }

    /// `base` seconds for a step, `row` of that for each drafted token, `pass` of that for each pass.
    pub fn linear(sequences: usize, base: f64, row: f64, pass: f64) -> Self {
        Self {
            sequences,
            verify: (0..=sequences * MAX_DEPTH)
                .map(|drafted| base * (1.0 + row * drafted as f64))
                .collect(),
            pass: (0..=sequences)
                .map(|n| if n == 0 { 0.0 } else { base * pass })
                .collect(),
            planning: 0.0,
            unevenness: 0.0,
        }
    }

    /// Rows that drafts may add.
    pub(super) fn most(&self) -> usize {
        self.verify.len().saturating_sub(1)
    }

    pub(super) fn verify(&self, drafted: usize) -> f64 {
        let last = self.verify.last().copied().unwrap_or(0.0);
        self.verify.get(drafted).copied().unwrap_or(last)
    }

    /// The same where there may be more rows than drafts are allowed to add: as dear as those are on average.
    fn verify_beyond(&self, drafted: usize) -> f64 {
        let most = self.most().max(1);
        let row = (self.verify(most) - self.verify(0)) / most as f64;
        self.verify(drafted) + row * drafted.saturating_sub(self.most()) as f64
    }

    /// The same for an expected number.
    pub(super) fn verify_about(&self, drafted: f64) -> f64 {
        let (below, part) = (drafted.floor(), drafted.fract());
        let below = below as usize;
        let first = self.verify(below);
        if part > 0.0 {
            first + part * (self.verify(below + 1) - first)
        } else {
            first
        }
    }

    pub(super) fn pass(&self, sequences: usize) -> f64 {
        let last = self.pass.last().copied().unwrap_or(0.0);
        self.pass.get(sequences).copied().unwrap_or(last)
    }

    /// What a token must bring, once it is its turn, where the plan has these depths.
    pub(super) fn worth(&self, arms: &[Arm], depths: &[usize]) -> Worth {
        let of = |by_model: bool| {
            let arms = arms.iter().zip(depths);
            arms.filter(move |(arm, _)| arm.runs_a_model == by_model)
                .map(|(_, &depth)| depth)
        };
        let looked_up: usize = of(false).sum();
        let drafts = of(true).filter(|&depth| depth > 0).count().max(1);
        let drafting = self.pass.len().saturating_sub(1).max(1);
        let alone = self.pass(1);
        let more = (self.pass(drafting) - alone) / (drafting - 1).max(1) as f64;
        Worth {
            price: self.goodput(arms, depths),
            rows: std::array::from_fn(|drafted| {
                let seconds = self.verify_beyond(looked_up + drafts * drafted);
                (seconds - self.verify(looked_up)) / drafts as f64
            }),
            pass: (alone - more).max(0.0),
            more,
        }
    }

    /// Seconds of a step with these depths.
    pub(super) fn seconds(&self, arms: &[Arm], depths: &[usize]) -> f64 {
        let mut in_pass = [0usize; MAX_DEPTH];
        let (mut rows, mut goes_on, mut begins) = (0.0, 0.0f64, 0.0);
        for (arm, &depth) in arms.iter().zip(depths) {
            rows += arm.rows(depth);
            if !arm.runs_a_model {
                continue;
            }
            goes_on = goes_on.max(arm.goes_on);
            for count in in_pass.iter_mut().take(depth) {
                *count += 1;
            }
            if depth > 0 {
                begins += arm.instalment;
            }
        }
        // The first pass always runs; each further one if any draft goes on.
        let mut runs = 1.0;
        let mut passes = 0.0;
        for &sequences in in_pass.iter().filter(|&&n| n > 0) {
            passes += runs * self.pass(sequences);
            runs *= goes_on;
        }
        let planning = if rows > 0.0 { self.planning } else { 0.0 };
        self.verify_about(rows) + passes + begins + planning
    }

    /// Expected tokens per second with these depths.
    pub(super) fn goodput(&self, arms: &[Arm], depths: &[usize]) -> f64 {
        tokens(arms, depths) / self.seconds(arms, depths).max(f64::MIN_POSITIVE)
    }

    /// The same, over that without drafts.
    pub(super) fn speedup(&self, arms: &[Arm], depths: &[usize]) -> f64 {
        if arms.is_empty() {
            return 1.0;
        }
        let plain = arms.len() as f64 / self.verify(0).max(f64::MIN_POSITIVE);
        self.goodput(arms, depths) / plain
    }
}

#[cfg(test)]
impl StepCosts {
    /// The same where drafts may add at most `most` rows.
    pub(super) fn bounded(mut self, most: usize) -> Self {
        self.verify.truncate(most + 1);
        self
    }
}
