//! What drafts leave behind for the steps that follow them.
//!
//! A step with drafts fills the processor's caches with what the draft model and more rows need, which is the likely reason
//! that the first plain step behind one took 16 % longer than the eighth where the target just fits beside its keys. A law that drafts sees no other plain
//! steps than such, and holding drafts against them made it draft at a loss for seconds. So whenever a run of plain steps
//! follows drafts, its beginning is compared with what it settles at, and plain steps that come soon are set right by that.

use super::RunningMedian;

/// Plain steps behind drafts until they are as any other, and the one at which a run of them is judged.
pub(crate) const SOON: usize = 5;
const RUN: usize = SOON + 4;

/// Runs before their ratio is believed, and ratios within which it is: less may be noise, more is something else.
const FEWEST_RUNS: usize = 3;
const LEAST: f64 = 1.05;
const MOST: f64 = 1.4;

/// The ratio until it is known, for a batch whose steps are short enough to run out of a cache. It must not be too small: a law
/// that holds drafts against plain steps that seem slow goes on drafting and never finds out, and one that stops finds out at
/// once. Of one sequence drafts gain clearly or not at all, and a wrong guess would cost more than it saves.
const GUESS: f64 = 1.12;
const SHORT: f64 = 0.002;

/// Learns how much longer plain steps take soon behind drafts.
#[derive(Debug, Clone, Default)]
pub(super) struct Aftermath {
    /// Whether there were drafts before the present run of plain steps: before the first draft they leave nothing behind.
    follows_drafts: bool,
    /// Plain steps since the last one with drafts.
    since: usize,
    /// The first of them, over what it was expected to take, and those that came late enough.
    first: f64,
    late: RunningMedian,
    ratios: RunningMedian,
}

impl Aftermath {
    /// Takes note of a step that took `relative` times as long as expected; gives how many plain ones there were since
    /// the last with drafts, itself included.
    pub(super) fn observe(&mut self, drafts: bool, relative: f64) -> usize {
        if drafts {
            self.follows_drafts = true;
            self.since = 0;
            self.late = RunningMedian::default();
            return 0;
        }
        self.since += 1;
        if self.since == 1 {
            self.first = relative;
        } else if self.since > SOON && self.since < RUN {
            self.late.push(relative);
        } else if self.since == RUN && self.follows_drafts {
            self.ratios.push(self.first / self.late.median());
        }
        self.since
    }

    /// Seconds that all plain steps behind a draft take longer for it, of so many sequences and `seconds` each.
    pub(super) fn whole(&self, batch: usize, seconds: f64) -> f64 {
        let more = |since| self.factor(since, batch, seconds) - 1.0;
        seconds * (1..=SOON).map(more).sum::<f64>()
    }

    /// What a plain step of so many sequences takes, the `since`-th behind drafts, over what it would take in a run of them.
    pub(super) fn factor(&self, since: usize, batch: usize, seconds: f64) -> f64 {
        let ratio = if self.ratios.len() >= FEWEST_RUNS {
            self.ratios.median()
        } else if batch > 1 && seconds < SHORT {
            GUESS
        } else {
            1.0
        };
        if ratio < LEAST || since == 0 || since > SOON {
            return 1.0;
        }
        let left = (SOON + 1 - since) as f64 / SOON as f64;
        1.0 + (ratio.min(MOST) - 1.0) * left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plain steps behind one with drafts, which take so much longer than in a run.
    fn run(aftermath: &mut Aftermath, more: &[f64]) {
        aftermath.observe(true, 1.8);
        for step in 0..2 * RUN {
            aftermath.observe(false, 1.0 + more.get(step).copied().unwrap_or(0.0));
        }
    }

    #[test]
    fn what_drafts_leave_behind_is_learnt_from_runs_of_plain_steps() {
        let mut aftermath = Aftermath::default();
        for _ in 0..FEWEST_RUNS {
            assert_eq!(aftermath.factor(1, 4, 1.0), 1.0);
            run(&mut aftermath, &[0.2, 0.1, 0.05]);
        }
        assert!((aftermath.factor(1, 4, 1.0) - 1.2).abs() < 1e-9);
        assert!(
            aftermath.factor(2, 4, 1.0) < aftermath.factor(1, 4, 1.0)
                && aftermath.factor(SOON, 4, 1.0) > 1.0
        );
        assert_eq!(aftermath.factor(SOON + 1, 4, 1.0), 1.0);
    }

    #[test]
    fn until_it_is_known_it_is_guessed_for_short_steps_of_a_batch() {
        let mut aftermath = Aftermath::default();
        assert_eq!(aftermath.factor(1, 4, 0.001), GUESS);
        assert_eq!(aftermath.factor(SOON + 1, 4, 0.001), 1.0);
        assert_eq!(aftermath.factor(1, 1, 0.001), 1.0, "one sequence");
        assert_eq!(aftermath.factor(1, 4, 0.020), 1.0, "long steps");
        (0..FEWEST_RUNS).for_each(|_| run(&mut aftermath, &[]));
        assert_eq!(aftermath.factor(1, 4, 0.001), 1.0, "it is known");
    }

    #[test]
    fn steps_that_differ_by_chance_change_nothing() {
        let mut aftermath = Aftermath::default();
        for wobble in [0.03, -0.2, 0.01, 0.04, 0.02] {
            run(&mut aftermath, &[wobble]);
        }
        assert_eq!(aftermath.factor(1, 4, 1.0), 1.0);
    }

    #[test]
    fn steps_before_the_first_draft_say_nothing() {
        let mut aftermath = Aftermath::default();
        for _ in 0..2 * RUN {
            aftermath.observe(false, 1.0);
        }
        assert_eq!(aftermath.ratios.len(), 0);
    }

    #[test]
    fn plain_steps_between_drafts_say_nothing() {
        let mut aftermath = Aftermath::default();
        for _ in 0..100 {
            aftermath.observe(true, 1.8);
            assert_eq!(aftermath.observe(false, 1.2), 1);
        }
        assert_eq!(aftermath.factor(1, 4, 1.0), 1.0);
    }
}
