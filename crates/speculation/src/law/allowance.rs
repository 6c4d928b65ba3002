//! What the draft model may lose in a row.
//!
//! Plans rest on estimates, and estimates can be wrong together: rows that cost more in a batch than was learnt of them one
//! by one, drafts that are dropped behind a pass, prompts of many sequences that are read at once. So there is an account
//! that asks no estimate but one, what a step without drafts takes, and is kept in such steps: every step in which the model
//! worked pays in what its tokens would have taken without it, and takes out what it took. When it is empty the model rests
//! for a second and gets a third of it back. Whatever else goes wrong, no more than that is lost in a second.
//!
//! One sequence gains or loses a step at a time by luck, so the account must be large enough to outlast it; in a batch luck
//! evens out.

use std::time::Duration;

/// Steps in the account of one sequence; of a batch it is so many over the root of its sequences.
const MOST: f64 = 64.0;

/// What of it the model goes on with after a rest.
const AFTER_A_REST: f64 = 1.0 / 3.0;

const REST: Duration = Duration::from_secs(1);

/// Most that one step may take out: in one that the machine was away in, drafts lost nothing.
const WORST_STEP: f64 = 4.0;

/// The account.
#[derive(Debug, Clone, Default)]
pub(super) struct Allowance {
    /// What is gone of it, in steps without drafts.
    spent: f64,
    rests_until: Option<Duration>,
}

impl Allowance {
    /// Whether the model has to rest now.
    pub(super) fn rests(&self, now: Duration) -> bool {
        self.rests_until.is_some_and(|until| now < until)
    }

    /// A step of so many sequences in which the model worked took `took` steps without drafts, and its tokens would have
    /// taken `plain` of them.
    pub(super) fn settle(&mut self, now: Duration, sequences: usize, plain: f64, took: f64) {
        if self.rests(now) {
            return;
        }
        let most = MOST / (sequences.max(1) as f64).sqrt();
        if self.rests_until.take().is_some() {
            self.spent = most * (1.0 - AFTER_A_REST);
        }
        self.spent = (self.spent + (took - plain).min(WORST_STEP)).max(0.0);
        if self.spent > most {
            self.rests_until = Some(now + REST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs for twenty seconds in steps of 4 ms; every step of the model takes `ratio` of what its tokens would take without
    /// it. Gives the part of the time that was lost.
    fn lost(sequences: usize, ratio: f64) -> f64 {
        let step = Duration::from_millis(4);
        let mut allowance = Allowance::default();
        let (mut now, mut lost) = (Duration::ZERO, 0.0);
        while now < Duration::from_secs(20) {
            if allowance.rests(now) {
                now += step;
            } else {
                lost += (ratio - 1.0) * step.as_secs_f64();
                now += step.mul_f64(ratio);
                allowance.settle(now, sequences, 1.0, ratio);
            }
        }
        lost / 20.0
    }

    #[test]
    fn what_is_lost_is_bounded_however_wrong_the_plans_are() {
        for (sequences, most) in [(1, 64.0), (4, 32.0), (16, 16.0)] {
            // In a second the part after a rest and the step that ends it; once, the rest of the account.
            let steps = most / 3.0 + WORST_STEP + most / 20.0;
            for ratio in [1.05, 1.2, 2.0, 5.0] {
                let lost = lost(sequences, ratio);
                assert!(lost < steps * 0.004, "{lost} of {sequences} at {ratio}");
            }
        }
    }

    #[test]
    fn a_model_that_pays_goes_on_through_bad_luck() {
        let mut allowance = Allowance::default();
        for step in 0..10_000 {
            // Two tokens more in one of three steps, which take half as long again.
            let plain = if step % 3 == 0 { 3.0 } else { 1.0 };
            allowance.settle(Duration::ZERO, 1, plain, 1.5);
            assert!(!allowance.rests(Duration::ZERO), "step {step}");
        }
    }

    #[test]
    fn a_step_in_which_the_machine_was_away_is_forgiven() {
        let mut allowance = Allowance::default();
        allowance.settle(Duration::ZERO, 16, 1.0, 700.0);
        assert!(!allowance.rests(Duration::ZERO));
    }
}
