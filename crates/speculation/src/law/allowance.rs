//! What the draft model may lose in a row.
//!
//! Plans rest on estimates, and estimates can be wrong together: rows that cost more in a batch than was learnt of them one
//! by one, drafts that are dropped behind a pass, prompts of many sequences that are read at once. So there is an account
//! that asks no estimate but one, what a step without drafts takes, and is kept in such steps: every step in which the model
//! worked pays in what its tokens would have taken without it, and takes out what it took. When it is empty the model rests
//! for a second and gets a little of it back. Whatever else goes wrong, no more than that is lost in a second of steps that read
//! no prompt; those that do are not counted.
//!
//! One sequence gains or loses a step at a time by luck, so the account must be large enough to outlast it; in a batch luck
//! evens out.
//!
//! What a step without drafts takes is believed to be the least of what is known of it: of plain steps in a row, which may be
//! out of date by now; of single ones among drafts, which are few, and take longer; and of learnt costs, which take drafts that
//! cost more than was learnt of them for a slow machine. So the account is emptied too soon rather than too late, and a rest
//! begins with a look: where the first plain steps of it are slower than drafts were held against, it ends at once.

use std::time::Duration;

use crate::cost::{RunningMedian, SOON};
use crate::step::Outcome;

/// Steps in the account of one sequence; of a batch it is so many over the root of its sequences.
const MOST: f64 = 48.0;

/// What of it the model goes on with after a rest, at most, and the share of the rest's time that this may be: so no more of all
/// time is lost for long. One step it must be.
const AFTER_A_REST: f64 = 1.0 / 3.0;
const SHARE_OF_A_REST: f64 = 0.02;

const REST: Duration = Duration::from_secs(1);

/// Most that one step may take out: in one that the machine was away in, drafts lost nothing.
pub(super) const WORST_STEP: f64 = 4.0;

/// Single ones among drafts that say something.
const FEWEST: usize = 3;

/// Steps of a rest that are looked at, how much slower they must be than was believed for it to end, and how long they are
/// then believed.
const LOOKED_AT: usize = 5;
const SLOWER: f64 = 1.06;
const FRESH: Duration = Duration::from_millis(500);

/// The account.
#[derive(Debug, Clone, Default)]
pub(super) struct Allowance {
    /// What is gone of it, in steps without drafts.
    spent: f64,
    rest: Option<Rest>,
    plain: LatestPlain,
}

#[derive(Debug, Clone, Copy)]
struct Rest {
    until: Duration,
    /// Seconds of a plain step that drafts were held against, until that was looked at.
    in_doubt: Option<f64>,
}

/// The latest steps without drafts of the present batch.
#[derive(Debug, Clone, Default)]
struct LatestPlain {
    sequences: usize,
    since_drafts: usize,
    /// Those that came late enough behind drafts.
    in_a_row: RunningMedian,
    /// The others.
    among_drafts: RunningMedian,
    /// Until then those in a row are believed, whatever is said otherwise: they have just been looked at.
    fresh_until: Duration,
}

impl LatestPlain {
    fn push(&mut self, sequences: usize, seconds: f64) {
        self.since_drafts += 1;
        if self.sequences != sequences {
            self.forget();
            self.sequences = sequences;
        }
        if self.since_drafts > SOON {
            self.in_a_row.push(seconds);
        } else {
            self.among_drafts.push(seconds);
        }
    }

    fn forget(&mut self) {
        self.in_a_row = RunningMedian::default();
        self.among_drafts = RunningMedian::default();
        self.fresh_until = Duration::ZERO;
    }

    /// Seconds of such a step, if they are believed to be `learnt`.
    fn with(&self, now: Duration, sequences: usize, learnt: f64) -> f64 {
        if self.sequences != sequences {
            return learnt;
        }
        let in_a_row = self.in_a_row.median();
        if now < self.fresh_until {
            return in_a_row;
        }
        let among_drafts = match self.among_drafts.len() {
            FEWEST.. => self.among_drafts.median(),
            _ => learnt,
        };
        let in_a_row = if in_a_row > 0.0 { in_a_row } else { learnt };
        learnt.min(in_a_row).min(among_drafts)
    }
}

impl Allowance {
    /// Whether the model has to rest now.
    pub(super) fn rests(&self, now: Duration) -> bool {
        self.rest.is_some_and(|rest| now < rest.until)
    }

    /// Counts a step, which is believed to take `learnt` seconds without drafts.
    pub(super) fn observe(&mut self, now: Duration, outcome: &Outcome<'_>, learnt: f64) {
        let (drafts, sequences) = (outcome.drafts, outcome.drafts.len());
        let plain = outcome.passes == 0 && drafts.iter().all(|one| one.drafted == 0);
        if !plain {
            self.plain.since_drafts = 0;
        }
        if outcome.prefill_rows > 0 || sequences == 0 {
            return;
        }
        if outcome.passes > 0 {
            let step = self.plain.with(now, sequences, learnt);
            let step = step.max(f64::MIN_POSITIVE);
            let took = outcome.verify + outcome.draft + outcome.catch_up + outcome.planning;
            let plain = outcome.tokens as f64 / sequences as f64;
            self.settle(now, sequences, step, plain, took.as_secs_f64() / step);
        } else if plain {
            self.plain.push(sequences, outcome.verify.as_secs_f64());
            self.look(now);
        }
    }

    /// A step of so many sequences in which the model worked took `took` steps without drafts of `step` seconds, and its tokens
    /// would have taken `plain` of them.
    fn settle(&mut self, now: Duration, sequences: usize, step: f64, plain: f64, took: f64) {
        if self.rests(now) {
            return;
        }
        let most = MOST / (sequences.max(1) as f64).sqrt();
        if self.rest.take().is_some() {
            let share = SHARE_OF_A_REST * REST.as_secs_f64() / step;
            self.spent = most - share.min(AFTER_A_REST * most).max(1.0);
        }
        self.spent = (self.spent + (took - plain).min(WORST_STEP)).max(0.0);
        if self.spent > most {
            self.plain.forget();
            self.rest = Some(Rest {
                until: now + REST,
                in_doubt: Some(step),
            });
        }
    }

    /// Ends a rest that should not have begun.
    fn look(&mut self, now: Duration) {
        if let Some(rest) = &mut self.rest
            && self.plain.in_a_row.len() >= LOOKED_AT
            && let Some(believed) = rest.in_doubt.take()
            && self.plain.in_a_row.median() > SLOWER * believed
        {
            self.rest = None;
            self.spent = 0.0;
            self.plain.fresh_until = now + FRESH;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use crate::step::Verified;

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
                allowance.settle(now, sequences, step.as_secs_f64(), 1.0, ratio);
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

    /// A step of `sequences`, with or without a draft of one token for each, which nobody accepts; says whether the model rests
    /// then.
    fn step(
        allowance: &mut Allowance,
        sequences: usize,
        drafts: bool,
        millis: u64,
        learnt: f64,
    ) -> bool {
        let drafted = usize::from(drafts);
        let verified = Verified {
            id: 1,
            source: Source::Model,
            planned: drafted,
            drafted,
            accepted: 0,
            lookup: None,
        };
        let outcome = Outcome {
            drafts: &vec![verified; sequences],
            draft_rows: sequences * drafted,
            tokens: sequences,
            passes: drafted,
            verify: Duration::from_millis(millis),
            context: 100,
            prefill_rows: 0,
            draft: Duration::ZERO,
            pass_rows: sequences * drafted,
            catch_up: Duration::ZERO,
            caught_up: 0,
            read_along: 0,
            planning: Duration::ZERO,
        };
        allowance.observe(Duration::ZERO, &outcome, learnt);
        allowance.rests(Duration::ZERO)
    }

    #[test]
    fn dear_drafts_are_seen_though_the_machine_is_believed_to_be_slow() {
        let mut allowance = Allowance::default();
        for _ in 0..20 {
            step(&mut allowance, 4, false, 10, 0.010);
        }
        // What was learnt has followed the drafts: a plain step, too, is believed to take 14 ms by now.
        for _ in 0..300 {
            step(&mut allowance, 4, true, 14, 0.014);
        }
        assert!(allowance.rests(Duration::ZERO));
    }

    #[test]
    fn a_rest_ends_where_plain_steps_turn_out_to_be_as_slow_as_drafts() {
        for (plain_now, rests) in [(10, true), (14, false)] {
            let mut allowance = Allowance::default();
            let mut step = |drafts, millis| step(&mut allowance, 1, drafts, millis, 0.010);
            (0..20).for_each(|_| assert!(!step(false, 10)));
            assert!((0..1_000).any(|_| step(true, 14)));
            (0..SOON + LOOKED_AT - 1).for_each(|_| assert!(step(false, plain_now)));
            assert_eq!(step(false, plain_now), rests, "{plain_now} ms");
        }
    }

    #[test]
    fn a_model_that_pays_goes_on_through_bad_luck() {
        let mut allowance = Allowance::default();
        for step in 0..10_000 {
            // Two tokens more in one of three steps, which take half as long again.
            let plain = if step % 3 == 0 { 3.0 } else { 1.0 };
            allowance.settle(Duration::ZERO, 1, 0.004, plain, 1.5);
            assert!(!allowance.rests(Duration::ZERO), "step {step}");
        }
    }

    #[test]
    fn a_batch_of_thousands_has_a_step_left_after_a_rest() {
        for sequences in [400, 500, 5_000] {
            let mut allowance = Allowance::default();
            let mut now = Duration::ZERO;
            for _ in 0..10 {
                allowance.settle(now, sequences, 0.1, 1.0, 5.0);
                assert!(allowance.rests(now));
                now += REST;
                assert!(!allowance.rests(now));
            }
        }
    }

    #[test]
    fn a_step_in_which_the_machine_was_away_is_forgiven() {
        let mut allowance = Allowance::default();
        allowance.settle(Duration::ZERO, 16, 0.004, 1.0, 700.0);
        assert!(!allowance.rests(Duration::ZERO));
    }
}
