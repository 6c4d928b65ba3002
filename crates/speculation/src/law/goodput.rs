//! `goodput`: the depth of the most expected tokens per second.
//!
//! For every step, over the sequences `i` that decode:
//! `depths = argmax (sum_i 1 + survival_i,0 + ... + survival_i,{k_i - 1}) / T(batch, sum k_i, context)`
//! with survivals from [`crate::Acceptance`] and times from [`crate::Costs`], solved by [`allocate`].
//! Around that:
//! - a depth is kept for a quarter of a second at least, and left only for one that is 5 % better, unless all of them
//!   together promise less than no drafts: those are left at once;
//! - at most 1 % of the time is spent on probes: a deeper draft of one sequence, or a plain step where it
//!   is not known what that costs. They bring the law back from depth 0;
//! - the planned depth is a bound: what a token must be worth goes with the plan ([`crate::Worth`]), and the draft
//!   model stops where its own confidence falls below it;
//! - with several sources, [`choose_source`] says who drafts, at the price that time had in the last step.
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
//!     let candidate = Candidate { id: 1, context: 50, max_depth: 8, model: true, lookup: None };
//!     let mut depth = 0;
//!     for _ in 0..steps {
//!         now += Duration::from_millis(25);
//!         depth = controller.plan(now, &Step::decoding(&[candidate])).drafts[0].depth;
//!         let verified = Verified {
//!             id: 1, source: Source::Model, planned: depth, drafted: depth,
//!             accepted: accepted_of(depth),
//!         };
//!         controller.observe(now, &Outcome {
//!             drafts: &[verified],
//!             context: 50,
//!             prefill_rows: 0,
//!             verify: Duration::from_millis(20 + depth as u64),
//!             draft: Duration::from_millis(2 * depth as u64),
//!             passes: depth,
//!             pass_rows: depth,
//!             catch_up: Duration::ZERO,
//!         });
//!     }
//!     depth
//! };
//! assert_eq!(depth_after(100, |drafted| drafted), 8); // everything is accepted
//! assert_eq!(depth_after(101, |_| 0), 0);             // nothing is
//! ```

use std::time::Duration;

use super::allocate::{Arm, StepCosts, allocate, choose_source, mean, tokens};
use super::hold::Hold;
use super::probe::{Pending, Prober};
use super::{Decision, Evidence, Law, Reason};
use crate::cost::StepShape;
use crate::source::Source;
use crate::step::{Draft, Outcome, Plan, Step};

/// Depth of a probe where nothing is drafted: two positions tell more than one at nearly the same price.
const PROBE_DEPTH: usize = 2;

/// Sequences from which on they probe together too.
const TOGETHER_FROM: usize = 4;

/// State of the law.
#[derive(Debug, Clone, Default)]
pub struct Goodput {
    hold: Hold,
    prober: Prober,
    /// Tokens per second of the last plan, by sequence.
    price: Option<f64>,
    /// Mean depth of the last plan.
    depth: f64,
    achieved: Achieved,
}

/// Tokens and seconds of the latest steps. What time is worth to a draft that could go on is what it brought, not
/// what a plan promised: a price above what is achieved would end drafts that raise it.
#[derive(Debug, Clone, Copy, Default)]
struct Achieved {
    tokens: f64,
    seconds: f64,
    steps: f64,
}

impl Achieved {
    const KEEP: f64 = 0.98;
    /// Steps before it counts.
    const ENOUGH: f64 = 8.0;

    fn push(&mut self, tokens: f64, seconds: f64) {
        self.tokens = self.tokens * Self::KEEP + tokens;
        self.seconds = self.seconds * Self::KEEP + seconds;
        self.steps = self.steps * Self::KEEP + 1.0;
    }

    /// Tokens per second, once it is known.
    fn rate(&self) -> Option<f64> {
        (self.steps >= Self::ENOUGH && self.seconds > 0.0).then(|| self.tokens / self.seconds)
    }
}

/// A plan on its way.
struct Draught<'a> {
    now: Duration,
    who: &'a [(u64, Source)],
    arms: &'a [Arm],
    costs: &'a StepCosts,
    plain_evidence: f64,
}

impl Law for Goodput {
    fn plan(&mut self, now: Duration, step: &Step<'_>, evidence: &Evidence) -> Plan {
        self.prober.accrue(now);
        let shape = StepShape {
            sequences: step.candidates.len(),
            drafted: 0,
            context: step.candidates.iter().map(|c| c.context).sum(),
            prefill_rows: step.prefill_rows,
        };
        let plain = 1.0 / evidence.costs.verify(&shape).max(f64::MIN_POSITIVE);
        let price = self.price.unwrap_or(plain) * shape.sequences as f64;
        let (who, arms): (Vec<_>, Vec<_>) = step
            .candidates
            .iter()
            .map(|candidate| {
                let (source, limit) =
                    choose_source(candidate, evidence, &shape, price).unwrap_or((Source::Model, 0));
                let arm = Arm::new(evidence, candidate.id, source, limit);
                ((candidate.id, source), arm)
            })
            .unzip();
        let costs = StepCosts::new(step, evidence, &arms);
        let best = allocate(&arms, &costs);
        let depths = self.hold.settle(now, &who, &arms, &costs, &best);
        self.price = Some(costs.goodput(&arms, &depths) / shape.sequences.max(1) as f64);
        let reason = self.reason(&arms, &depths);
        let draught = Draught {
            now,
            who: &who,
            arms: &arms,
            costs: &costs,
            plain_evidence: evidence.costs.evidence(now, &shape),
        };
        let speedup = costs.speedup(&arms, &depths);
        let mut worth = costs.worth(&arms, &depths);
        if let Some(achieved) = self.achieved.rate() {
            worth.price = worth.price.min(achieved);
        }
        let probe = self.probe(&draught, &depths);
        let (tried, reason) = probe.unwrap_or((depths.clone(), reason));
        let decision = Decision::of(&tried, speedup, reason);
        let drafts = who
            .into_iter()
            .zip(depths.into_iter().zip(tried))
            .map(|((id, source), (usual, depth))| Draft {
                id,
                source,
                depth,
                // Only whoever goes deeper: the others' drafts are as worthy as ever, and no more.
                probes: depth > usual,
            })
            .collect();
        Plan {
            drafts,
            decision,
            worth,
        }
    }

    fn observe(&mut self, now: Duration, outcome: &Outcome<'_>) {
        if outcome.prefill_rows == 0 {
            let tokens: usize = outcome.drafts.iter().map(|v| v.accepted + 1).sum();
            let seconds = (outcome.verify + outcome.draft).as_secs_f64();
            self.achieved.push(tokens as f64, seconds);
        }
        self.prober.charge(outcome.catch_up);
        for verified in outcome.drafts {
            self.prober.settle(now, verified.id, verified.accepted);
        }
    }

    fn forget(&mut self, sequence: u64) {
        self.hold.forget(sequence);
    }
}

impl Goodput {
    fn reason(&mut self, arms: &[Arm], depths: &[usize]) -> Reason {
        let depth = mean(depths);
        let from = std::mem::replace(&mut self.depth, depth);
        if arms.iter().all(|arm| arm.limit == 0) {
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

    fn probe(&mut self, draught: &Draught<'_>, depths: &[usize]) -> Option<(Vec<usize>, Reason)> {
        let drafts = depths.iter().any(|&depth| depth > 0);
        let probe = if drafts && draught.plain_evidence < 1.0 {
            self.probe_off(draught, depths)
        } else {
            None
        };
        let probe = probe.or_else(|| {
            let together = depths.len() >= TOGETHER_FROM && !drafts;
            let turn = together && self.prober.turn().is_multiple_of(2);
            turn.then(|| self.probe_together(draught)).flatten()
        });
        probe.or_else(|| self.probe_deeper(draught, depths))
    }

    /// In a large batch the rows of one probe are lost in the noise of the step: what rows cost is seen only when
    /// many come at once.
    fn probe_together(&mut self, draught: &Draught<'_>) -> Option<(Vec<usize>, Reason)> {
        let Draught {
            now,
            who,
            arms,
            costs,
            ..
        } = *draught;
        let tried: Vec<usize> = arms.iter().map(|arm| arm.limit.min(1)).collect();
        let rows: usize = tried.iter().sum();
        if rows < arms.len().div_ceil(2) || rows > costs.most() {
            return None;
        }
        let plain = vec![0; arms.len()];
        let seconds = costs.seconds(arms, &tried) - costs.verify(0);
        let price = costs.goodput(arms, &plain).max(f64::MIN_POSITIVE);
        let gain = (tokens(arms, &tried) - tokens(arms, &plain)) / price;
        let loss = (seconds - gain).max(0.3 * seconds);
        let &(sequence, _) = who.first()?;
        if !self.prober.affords(now, loss, false) {
            return None;
        }
        self.prober.spend(now, loss);
        Some((tried, Reason::ProbeDeeper { sequence }))
    }

    fn probe_off(
        &mut self,
        draught: &Draught<'_>,
        depths: &[usize],
    ) -> Option<(Vec<usize>, Reason)> {
        let Draught { arms, costs, .. } = *draught;
        let foregone = tokens(arms, depths) - arms.len() as f64;
        let saved = costs.seconds(arms, depths) - costs.verify(0);
        let price = costs.goodput(arms, depths).max(f64::MIN_POSITIVE);
        let mut loss = (foregone / price - saved).max(0.0);
        if draught.plain_evidence == 0.0 {
            // The first one is free: without it every expectation is a guess, its price too. Seconds that nobody has
            // measured yet would silence the probes for a minute.
            loss = 0.0;
        } else if !self.prober.affords(draught.now, loss, false) {
            return None;
        }
        self.prober.spend(draught.now, loss);
        Some((vec![0; depths.len()], Reason::ProbeOff))
    }

    fn probe_deeper(
        &mut self,
        draught: &Draught<'_>,
        depths: &[usize],
    ) -> Option<(Vec<usize>, Reason)> {
        let Draught {
            now,
            who,
            arms,
            costs,
            ..
        } = *draught;
        let turn = self.prober.turn();
        let count = depths.len();
        // In turns; those that draft nothing go first, for nothing else is known of them.
        let in_turn = |wanted: fn(usize) -> bool| {
            (0..count)
                .map(move |i| (i + turn) % count.max(1))
                .find(|&index| {
                    let room = arms.get(index).zip(depths.get(index));
                    room.is_some_and(|(arm, &depth)| wanted(depth) && depth < arm.limit)
                })
        };
        // Whose probe gained goes first: what the draft model had to read for it is read.
        let promising = self.prober.promising().and_then(|sequence| {
            let index = who.iter().position(|&(id, _)| id == sequence)?;
            let room = arms.get(index).zip(depths.get(index));
            room.is_some_and(|(arm, &depth)| depth == 0 && arm.limit > 0)
                .then_some(index)
        });
        let off = promising.or_else(|| in_turn(|depth| depth == 0));
        let neighbour = || in_turn(|depth| depth > 0).filter(|_| self.prober.neighbour_is_due(now));
        let index = off.or_else(neighbour)?;
        let (arm, &depth, &(id, _)) = (arms.get(index)?, depths.get(index)?, who.get(index)?);
        let deeper = if depth == 0 {
            PROBE_DEPTH
        } else {
            depth + 1 + usize::from(turn.is_multiple_of(4))
        };
        let mut tried = depths.to_vec();
        *tried.get_mut(index)? = deeper.min(arm.limit);
        if tried.iter().sum::<usize>() > costs.most() {
            return None;
        }
        let seconds = costs.seconds(arms, &tried) - costs.seconds(arms, depths);
        let price = costs.goodput(arms, depths);
        let gain = (tokens(arms, &tried) - tokens(arms, depths)) / price.max(f64::MIN_POSITIVE);
        // However promising, a probe may fail: a part of its price must be there.
        let loss = (seconds - gain).max(0.3 * seconds);
        if !self.prober.affords(now, loss, promising.is_some()) {
            return None;
        }
        let pending = Pending {
            sequence: id,
            usual: arm.tokens(depth) - 1.0,
            seconds,
            price,
        };
        self.prober.start(now, pending);
        Some((tried, Reason::ProbeDeeper { sequence: id }))
    }
}
