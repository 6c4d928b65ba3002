//! Guessing ahead: drafts, and how deep they go.
//!
//! [`Drafting`] stands between the step loop and the control loop of `speculation`. Before a step it looks
//! up what could follow each sequence, lets the controller decide who drafts how deep, and makes the
//! drafts; after the step it tells the controller what became of them and how long all of it took.
//!
//! Nothing here can change what a request was promised: drafts only become rows of a step, and what is emitted is
//! chosen by the sampler from the target's scores, row by row. So whatever fails here costs time only. One thing is
//! asked of a drafter in return: the odds that it gives with a draft are those that it was drawn from.

mod config;
mod drafter;
mod lookup;
mod model;

use std::time::{Duration, Instant};

use speculation::{
    Candidate, Confidence, Controller, Costs, Decision, DrafterKind, Drafters, Lookup, MAX_DEPTH,
    Outcome, Plan, Reason, Source, Step, Verified, Worth,
};

use crate::executor::Executor;
use crate::scheduler::SeqId;
pub use config::{SpeculationConfig, SpeculationStatus};
pub(crate) use drafter::{Decoding, DraftTime, Intent, Wanted};
use drafter::{Drafter, StopRule};
use lookup::Lookups;
use model::DraftModel;

/// All that an engine guesses with.
pub(crate) struct Drafting {
    /// Time spent in steps that decoded: the controller's clock. What it knows does not age while nothing runs.
    worked: Duration,
    controller: Controller,
    /// Everybody who can draft.
    drafters: Vec<Box<dyn Drafter>>,
    /// Those of them who may.
    allowed: Drafters,
    /// What the tokens of the next drafts must be worth.
    worth: Worth,
    /// What the plan of this step took, and learning from the step before.
    planning: Duration,
    learning: Duration,
    /// Until then the controller need not be asked: nothing is going to be drafted.
    paused_until: Duration,
    /// The deepest draft of the decision that was told last.
    told: Option<usize>,
}

/// What a draft model needs to know of the target it drafts for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TargetSizes {
    /// Of the target's cache.
    pub(crate) blocks: usize,
    /// Most rows in one step.
    pub(crate) rows: usize,
    /// Tokens with a name.
    pub(crate) known: usize,
}

/// What became of a sequence's draft.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fate<'a> {
    pub(crate) id: SeqId,
    pub(crate) source: Source,
    pub(crate) planned: usize,
    pub(crate) confidences: &'a [Confidence],
    pub(crate) drafted: usize,
    pub(crate) accepted: usize,
    /// Rows of the draft in the step, verified or not.
    pub(crate) rows: usize,
    /// Tokens chosen in the step.
    pub(crate) chosen: usize,
    /// Tokens of the sequence before the step.
    pub(crate) tokens: usize,
    /// Those that came with it; none if the sequence has ended.
    pub(crate) came: &'a [u32],
    /// The sequence has ended with this step.
    pub(crate) ended: bool,
}

impl Drafting {
    pub(crate) fn new(
        config: SpeculationConfig,
        draft: Option<Box<dyn Executor>>,
        target: TargetSizes,
    ) -> Self {
        let TargetSizes {
            blocks,
            rows,
            known,
        } = target;
        let mut drafters: Vec<Box<dyn Drafter>> = vec![Box::new(Lookups::default())];
        if let Some(executor) = draft {
            drafters.push(Box::new(DraftModel::new(executor, blocks, rows, known)));
        }
        Self {
            worked: Duration::ZERO,
            controller: Controller::new(config.law, Costs::default()),
            drafters,
            allowed: config.drafters,
            worth: Worth::default(),
            planning: Duration::ZERO,
            learning: Duration::ZERO,
            paused_until: Duration::ZERO,
            told: None,
        }
    }

    /// Whether nothing is ever drafted, or not for the moment.
    pub(crate) fn rests(&self) -> bool {
        self.worked < self.paused_until || self.is_off()
    }

    /// Whether nobody drafts who may.
    pub(crate) fn is_off(&self) -> bool {
        !self.kinds().any(|kind| self.allowed.allow(kind))
    }

    /// Whether there is a draft model, and it has not failed.
    pub(crate) fn has_model(&self) -> bool {
        self.kinds().any(|kind| kind == DrafterKind::Model)
    }

    fn kinds(&self) -> impl Iterator<Item = DrafterKind> {
        self.drafters.iter().map(|drafter| drafter.kind())
    }

    /// Changes drafters and law; what was learnt stays.
    pub(crate) fn configure(&mut self, config: SpeculationConfig) {
        self.allowed = config.drafters;
        self.controller.set_law(config.law);
        self.paused_until = Duration::ZERO;
    }

    /// Decides what to draft in a step that has room for `row_budget` rows more.
    pub(crate) fn plan(
        &mut self,
        decoding: &[Decoding<'_>],
        row_budget: usize,
    ) -> (Vec<Intent>, Decision) {
        let began = Instant::now();
        let candidates: Vec<Candidate> = decoding.iter().map(|one| self.candidate(one)).collect();
        let step = Step {
            candidates: &candidates,
            row_budget,
        };
        let Plan {
            drafts,
            decision,
            worth,
            pause,
        } = self.controller.plan(self.worked, &step);
        self.worth = worth;
        self.paused_until = self.worked + pause;
        self.tell(&decision);
        let intents = decoding
            .iter()
            .zip(drafts)
            .map(|(one, draft)| Intent::new(one.id, &draft))
            .collect();
        self.planning = began.elapsed();
        (intents, decision)
    }

    /// What those who may draft for a sequence could do.
    fn candidate(&mut self, one: &Decoding<'_>) -> Candidate {
        let mut candidate = Candidate {
            id: one.id.0,
            context: one.tokens.len(),
            max_depth: one.max_depth.min(MAX_DEPTH),
            model: false,
            behind: 0,
            lookup: None,
        };
        if candidate.max_depth == 0 {
            return candidate;
        }
        let bounded = Decoding {
            max_depth: candidate.max_depth,
            ..*one
        };
        for drafter in &mut self.drafters {
            let kind = drafter.kind();
            if !self.allowed.allow(kind) || !one.drafters.allow(kind) {
                continue;
            }
            let Some(offer) = drafter.offer(&bounded) else {
                continue;
            };
            match offer.source {
                Source::Model => {
                    candidate.model = true;
                    candidate.behind = offer.behind;
                }
                Source::Ngram(strength) => {
                    candidate.lookup = Some(Lookup {
                        length: offer.length,
                        strength,
                    });
                }
            }
        }
        candidate
    }

    /// Says in the log when the depth has changed, and why. A probe is no change.
    fn tell(&mut self, decision: &Decision) {
        let probes = matches!(
            decision.reason,
            Reason::ProbeDeeper { .. } | Reason::ProbeOff
        );
        if !probes && self.told != Some(decision.deepest) {
            self.told = Some(decision.deepest);
            tracing::debug!(
                depth = decision.depth,
                deepest = decision.deepest,
                speedup = decision.speedup,
                reason = %decision.reason,
                "another depth of drafts"
            );
        }
    }

    /// Lets everybody make the drafts that are wanted of them; says how long it took.
    pub(crate) fn draft(&mut self, mut wanted: Vec<Wanted<'_>>) -> DraftTime {
        let mut took = DraftTime::default();
        let mut failed = None;
        for drafter in &mut self.drafters {
            let kind = drafter.kind();
            let mut own: Vec<Wanted<'_>> = wanted
                .extract_if(.., |one| one.intent.source.kind() == kind)
                .collect();
            if own.is_empty() {
                continue;
            }
            let stop = StopRule {
                worth: self.worth,
                calibration: self.controller.calibration(),
            };
            match drafter.draft(&mut own, &stop) {
                Ok(time) => {
                    took += time;
                    for skipped in own.iter().filter_map(|one| one.intent.skipped) {
                        self.controller.skipped(skipped);
                    }
                }
                Err(error) => {
                    tracing::error!(error, "drafting failed; going on without {kind}");
                    failed = Some(kind);
                    for one in own {
                        one.intent.give_up();
                    }
                }
            }
        }
        self.drafters
            .retain(|drafter| Some(drafter.kind()) != failed);
        took
    }

    /// A step took so long in which nothing was planned. In a pause the clock goes on, or it would never end.
    pub(crate) fn pass(&mut self, step: Duration) {
        if self.worked < self.paused_until {
            self.worked += step;
        }
    }

    /// Learns from a step that took `step` in all, of which `drafting` was spent on drafts.
    pub(crate) fn observe(
        &mut self,
        fates: &[Fate<'_>],
        prefill_rows: usize,
        step: Duration,
        drafting: DraftTime,
    ) {
        let began = Instant::now();
        for drafter in &mut self.drafters {
            for fate in fates {
                drafter.verified(fate.id, fate.tokens + fate.accepted);
            }
        }
        let drafters = &mut self.drafters;
        let verified: Vec<Verified> = fates
            .iter()
            .map(|fate| Verified {
                id: fate.id.0,
                source: fate.source,
                planned: fate.planned,
                drafted: fate.drafted,
                accepted: fate.accepted,
                lookup: drafters
                    .iter_mut()
                    .filter(|_| !fate.came.is_empty())
                    .find_map(|drafter| drafter.judged(fate.id, fate.came)),
            })
            .collect();
        self.worked += step;
        let now = self.worked;
        let outcome = Outcome {
            drafts: &verified,
            draft_rows: fates.iter().map(|fate| fate.rows).sum(),
            tokens: fates.iter().map(|fate| fate.chosen).sum(),
            context: fates.iter().map(|fate| fate.tokens).sum(),
            prefill_rows,
            verify: step.saturating_sub(drafting.passes + drafting.catching_up + self.planning),
            draft: drafting.passes,
            passes: drafting.count,
            pass_rows: drafting.rows,
            catch_up: drafting.catching_up,
            caught_up: drafting.caught_up,
            read_along: drafting.read_along,
            planning: self.planning + self.learning,
        };
        self.controller.observe(now, &outcome);
        for fate in fates {
            let verified = fate.confidences.get(..fate.drafted).unwrap_or_default();
            self.controller.calibrate(verified, fate.accepted);
        }
        for fate in fates.iter().filter(|fate| fate.ended) {
            self.controller.forget(fate.id.0);
        }
        if let Some(low) = self.controller.low_acceptance(now) {
            tracing::warn!(acceptance = low.acceptance, "{low}");
        }
        self.learning = began.elapsed();
    }

    /// All sequences are gone, and their names may be given again.
    pub(crate) fn begin_anew(&mut self, gone: impl Iterator<Item = SeqId>) {
        gone.for_each(|id| self.controller.forget(id.0));
        for drafter in &mut self.drafters {
            drafter.forget_all();
        }
    }

    /// A sequence lost its blocks.
    pub(crate) fn preempted(&mut self, id: SeqId) {
        for drafter in &mut self.drafters {
            drafter.preempted(id);
        }
    }

    /// A sequence ended with this answer.
    pub(crate) fn ended(&mut self, id: SeqId, salt: Option<&str>, answer: &[u32]) {
        self.controller.forget(id.0);
        for drafter in &mut self.drafters {
            drafter.forget(id);
            if self.allowed.allow(drafter.kind()) {
                drafter.learn(salt, answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_by_steps_that_nobody_planned_and_the_clock_stands_still_otherwise() {
        let sizes = TargetSizes {
            blocks: 1,
            rows: 1,
            known: 1,
        };
        let config = SpeculationConfig {
            drafters: Drafters::Auto,
            ..SpeculationConfig::default()
        };
        let mut drafting = Drafting::new(config, None, sizes);
        let step = Duration::from_millis(5);
        drafting.pass(step);
        assert_eq!(drafting.worked, Duration::ZERO, "there is no pause");
        drafting.paused_until = Duration::from_millis(8);
        let paused = (0..10).take_while(|_| {
            let rests = drafting.rests();
            drafting.pass(step);
            rests
        });
        assert_eq!(paused.count(), 2);
        assert_eq!(drafting.worked, 2 * step);
        drafting.paused_until = Duration::from_secs(9);
        drafting.configure(config);
        assert!(!drafting.rests(), "another law may want to draft at once");
    }
}
