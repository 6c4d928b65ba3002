//! `goodput`: the depth of the most expected tokens per second.
//!
//! For every step, over the sequences `i` that decode:
//! `depths = argmax (sum_i 1 + survival_i,0 + ... + survival_i,{k_i - 1}) / T(batch, sum k_i, context)`
//! with survivals from [`crate::Acceptance`] and times from [`crate::Costs`], solved by [`allocate`].
//! Around that:
//! - a depth of the draft model is kept for a quarter of a second at least, and left only for one that is 5 % better (more
//!   where steps are uneven), unless all of them together promise less than no drafts: those are left at once. A lookup is
//!   another one in every step, and taken as deep as it is worth ([`super::hold`]);
//! - at most 1 % of the time is spent on probes: a draft of another depth of one sequence. They bring the law back from depth 0;
//! - among steps with drafts there is a plain one now and then ([`super::plain_steps`]): everything is held against those;
//! - what the draft model has to read before it can draft for a sequence is a part of the price, paid over as many drafts
//!   as sequences turn out to want of it ([`super::turns`]), and its first drafts are made by one sequence alone;
//! - what a token must be worth goes with the plan ([`crate::Worth`]): the draft model stops where its own confidence falls
//!   below it, and has room to go on beyond the planned depth where it does not;
//! - what the draft model has brought and taken is counted, whatever was planned ([`super::allowance`]): where it loses
//!   nevertheless, it rests;
//! - lookups are judged in every step in which they find something, drafted or not ([`crate::Looked`]);
//! - with several sources, [`super::choose`] says who drafts.
//!
//! # Example
//! A step takes 20 ms and 1 ms more for each drafted row; drafting a token takes 2 ms.
//! ```
//! use std::time::Duration;
//! use forespeak_speculation::{Candidate, Controller, Outcome, Source, Step, Verified};
//!
//! let mut controller = Controller::default();
//! let mut now = Duration::ZERO;
//! let mut depth_after = |steps: u64, accepted_of: fn(usize) -> usize| {
//!     let candidate = Candidate { id: 1, context: 50, max_depth: 8, model: true, behind: 0, lookup: None };
//!     let mut depth = 0;
//!     for _ in 0..steps {
//!         now += Duration::from_millis(25);
//!         depth = controller.plan(now, &Step::decoding(&[candidate])).drafts[0].depth;
//!         let verified = Verified {
//!             id: 1, source: Source::Model, planned: depth, drafted: depth,
//!             accepted: accepted_of(depth), lookup: None,
//!         };
//!         controller.observe(now, &Outcome {
//!             drafts: &[verified],
//!             draft_rows: depth,
//!             tokens: verified.accepted + 1,
//!             context: 50,
//!             prefill_rows: 0,
//!             verify: Duration::from_millis(20 + depth as u64),
//!             draft: Duration::from_millis(2 * depth as u64),
//!             passes: depth,
//!             pass_rows: depth,
//!             catch_up: Duration::ZERO, caught_up: 0, read_along: 0, planning: Duration::ZERO,
//!         });
//!     }
//!     depth
//! };
//! assert_eq!(depth_after(100, |drafted| drafted), 8); // everything is accepted
//! assert_eq!(depth_after(101, |_| 0), 0);             // nothing is
//! ```

use std::time::Duration;

use super::allocate::allocate;
use super::allowance::{Allowance, WORST_STEP};
use super::arm::Arm;
use super::choose::choose_sources;
use super::decision::mean;
use super::explore::Draught;
use super::hold::Hold;
use super::plain_steps::PlainSteps;
use super::probe::Prober;
use super::quiet::Quiet;
use super::step_costs::StepCosts;
use super::turns::Turns;
use super::{Decision, Evidence, Law, Reason};
use crate::cost::StepShape;
use crate::source::Source;
use crate::step::{Candidate, Draft, Outcome, Plan, Step, Verified};

/// Drafts of the draft model before all sequences begin with it: what it is worth is found out by one alone, for
/// each has to be read for.
const TRIED: u64 = 12;

/// State of the law.
#[derive(Debug, Clone, Default)]
pub struct Goodput {
    hold: Hold,
    prober: Prober,
    turns: Turns,
    allowance: Allowance,
    /// Seconds that the planned step would take without drafts.
    plain: f64,
    /// Mean depth of the last plan.
    depth: f64,
    achieved: Achieved,
    plain_steps: PlainSteps,
    quiet: Quiet,
}

/// Tokens and seconds of the latest steps that had to do without a lookup. What time is worth to a draft that could go on is
/// what it brought, not what a plan promised: a price above what is achieved would end drafts that raise it. Nor is it what
/// lookups bring: those wait where the text repeats itself, however one gets there.
#[derive(Debug, Clone, Copy, Default)]
struct Achieved {
    tokens: f64,
    seconds: f64,
    steps: f64,
    /// Sequences of the first of them.
    sequences: usize,
}

impl Achieved {
    const KEEP: f64 = 0.98;
    /// Steps before it counts.
    const ENOUGH: f64 = 8.0;

    fn push(&mut self, sequences: usize, tokens: f64, seconds: f64) {
        // Of one stream nothing is known of sixteen.
        if sequences >= 2 * self.sequences || 2 * sequences <= self.sequences {
            *self = Self {
                sequences,
                ..Self::default()
            };
        }
        self.tokens = self.tokens * Self::KEEP + tokens;
        self.seconds = self.seconds * Self::KEEP + seconds;
        self.steps = self.steps * Self::KEEP + 1.0;
    }

    /// Tokens per second, once it is known.
    fn rate(&self) -> Option<f64> {
        (self.steps >= Self::ENOUGH && self.seconds > 0.0).then(|| self.tokens / self.seconds)
    }
}

impl Law for Goodput {
    fn plan(&mut self, now: Duration, step: &Step<'_>, evidence: &Evidence) -> Plan {
        let steps = self.quiet.stands_for(now, self.plain);
        self.prober.accrue(now, steps);
        let shape = StepShape {
            sequences: step.candidates.len(),
            drafted: 0,
            context: step.candidates.iter().map(|c| c.context).sum(),
        };
        let rests = self.allowance.rests(now);
        let candidates: Vec<Candidate> = step
            .candidates
            .iter()
            .map(|&candidate| Candidate {
                model: candidate.model && !rests,
                ..candidate
            })
            .collect();
        let choices = choose_sources(&candidates, evidence, &self.turns, &shape);
        let mut model_is_wanted = false;
        for (choice, candidate) in choices.iter().zip(step.candidates) {
            if choice.is_some_and(|choice| choice.wants_model) {
                self.turns.count(candidate.id, steps);
                model_is_wanted = true;
            }
        }
        let (who, mut arms): (Vec<_>, Vec<_>) = choices
            .into_iter()
            .zip(step.candidates)
            .map(|(choice, candidate)| match choice {
                Some(choice) => ((candidate.id, choice.source), choice.arm),
                None => ((candidate.id, Source::Model), Arm::none()),
            })
            .unzip();
        if evidence.acceptance.totals(Source::Model).drafts < TRIED {
            leave_it_to_one(&mut arms);
        }
        let costs = StepCosts::new(step, evidence, &arms);
        self.plain = costs.verify(0);
        let best = allocate(&arms, &costs);
        let depths = self.hold.settle(now, &who, &arms, &costs, &best);
        let reason = self.reason(&arms, &depths, rests);
        let draught = Draught {
            now,
            who: &who,
            arms: &arms,
            costs: &costs,
            depths: &depths,
            leaves: Quiet::price_of_a_draft(&costs) + evidence.costs.left_behind(&shape),
            plain_evidence: evidence.costs.evidence(&shape),
            plain_is_due: self.plain_steps.are_due(evidence.costs.age(now, &shape)),
            known: &|drafted| evidence.costs.evidence(&StepShape { drafted, ..shape }),
        };
        let speedup = costs.speedup(&arms, &depths);
        let mut worth = costs.worth(&arms, &depths);
        if let Some(achieved) = self.achieved.rate() {
            worth.price = worth.price.min(achieved);
        }
        let probe = draught.probe(&mut self.prober);
        let (tried, reason) = probe.unwrap_or_else(|| (depths.clone(), reason));
        let plain = |depths: &[usize]| depths.iter().all(|&depth| depth == 0);
        self.plain_steps.planned(plain(&depths), plain(&tried));
        let nothing = plain(&tried) && plain(&depths);
        let pause = self.quiet.planned(now, &costs, !nothing, model_is_wanted);
        let decision = Decision::of(&tried, speedup, reason);
        let rooms = rooms(&arms, &tried, costs.most());
        let drafts = who
            .into_iter()
            .zip(depths.into_iter().zip(tried.into_iter().zip(rooms)))
            .map(|((id, source), (usual, (depth, room)))| {
                // Only whoever goes deeper: the others' drafts are as worthy as ever, and no more.
                let probes = depth > usual;
                Draft {
                    id,
                    source,
                    depth,
                    room: if probes { depth } else { room },
                    probes,
                }
            })
            .collect();
        Plan {
            drafts,
            decision,
            worth,
            pause,
        }
    }

    fn observe(&mut self, now: Duration, outcome: &Outcome<'_>) {
        let looked_up = |v: &Verified| v.drafted > 0 && !v.source.runs_a_model();
        if outcome.prefill_rows == 0 && !outcome.drafts.iter().all(looked_up) {
            let seconds = (outcome.verify + outcome.draft + outcome.planning).as_secs_f64();
            // In a longer one the machine was away.
            let longest = WORST_STEP * self.plain;
            let sequences = outcome.drafts.len();
            self.achieved
                .push(sequences, outcome.tokens as f64, seconds.min(longest));
        }
        self.allowance.observe(now, outcome, self.plain);
        self.prober.charge(outcome.catch_up);
        self.prober.settle(now, outcome.drafts);
    }

    fn forget(&mut self, sequence: u64) {
        self.hold.forget(sequence);
        self.turns.forget(sequence);
    }
}

impl Goodput {
    fn reason(&mut self, arms: &[Arm], depths: &[usize], rests: bool) -> Reason {
        let depth = mean(depths);
        let from = std::mem::replace(&mut self.depth, depth);
        if rests && depth == 0.0 {
            Reason::Resting
        } else if arms.iter().all(|arm| arm.limit == 0) {
            Reason::NothingToDraft
        } else if depth == 0.0 {
            Reason::Off
        } else if depth > from {
            Reason::Deeper { from }
        } else if depth < from {
            Reason::Shallower { from }
        } else {
            Reason::Steady
        }
    }
}

/// How far drafts may go. The draft model sees the text and knows where it can go on for long; how deep drafts pay on
/// average must not keep it from that. What it does with its room is learnt like any draft.
fn rooms(arms: &[Arm], depths: &[usize], most: usize) -> Vec<usize> {
    let drafts = |(arm, depth): &(&Arm, &usize)| arm.runs_a_model && **depth > 0;
    let by_model = arms.iter().zip(depths).filter(drafts).count();
    let spare = most.saturating_sub(depths.iter().sum()) / by_model.max(1);
    let room = |(arm, depth): (&Arm, &usize)| match drafts(&(arm, depth)) {
        true => (depth + spare).min(arm.limit).max(*depth),
        false => *depth,
    };
    arms.iter().zip(depths).map(room).collect()
}

/// Lets only the one begin for whom least is to be read.
fn leave_it_to_one(arms: &mut [Arm]) {
    let behind = |arm: &&mut Arm| arm.entry > 0.0 && arm.limit > 0;
    let least = arms
        .iter_mut()
        .filter(behind)
        .map(|arm| arm.entry)
        .min_by(f64::total_cmp);
    let mut left = 1;
    for arm in arms.iter_mut().filter(behind) {
        if left > 0 && Some(arm.entry) == least {
            left -= 1;
        } else {
            arm.limit = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_has_all_the_room_there_is_and_lookups_what_was_planned() {
        let model = Arm::geometric(0.8, 16);
        let lookup = Arm {
            runs_a_model: false,
            ..model
        };
        assert_eq!(rooms(&[model, lookup], &[2, 5], 12), [7, 5]);
        assert_eq!(rooms(&[model, model], &[1, 0], 40), [16, 0]);
        assert_eq!(rooms(&[model, model], &[2, 4], 6), [2, 4]);
    }

    #[test]
    fn what_was_achieved_is_of_about_so_many_sequences() {
        let mut achieved = Achieved::default();
        let mut rate_after = |steps, sequences, rate: f64| {
            (0..steps).for_each(|_| achieved.push(sequences, rate * 0.01, 0.01));
            achieved.rate()
        };
        assert_eq!(rate_after(7, 8, 100.0), None);
        assert!((rate_after(100, 8, 100.0).unwrap() - 100.0).abs() < 1e-6);
        assert!((rate_after(300, 9, 110.0).unwrap() - 110.0).abs() < 1.0);
        assert_eq!(rate_after(1, 16, 150.0), None, "twice as many");
        assert_eq!(rate_after(12, 8, 100.0).map(f64::round), Some(100.0));
    }
}
