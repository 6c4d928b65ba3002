//! Guessing ahead: drafts, and how deep they go.
//!
//! [`Drafting`] stands between the step loop and the control loop of `speculation`. Before a step it looks
//! up what could follow each sequence, lets the controller decide who drafts how deep, and makes the
//! drafts; after the step it tells the controller what became of them and how long all of it took.
//!
//! Nothing here can change a text: drafts only become rows of a step, and what is emitted is chosen by the
//! sampler from the target's scores, row by row, as without them. So whatever fails here costs time only.

mod config;
mod lookup;
mod model;
mod warning;

use std::time::Duration;

use speculation::{
    Candidate, Confidence, Controller, Costs, DEFAULT_DRAFT_RATIO, Decision, Draft, Drafters,
    MAX_DEPTH, Outcome, Plan, Reason, Source, Step, Verified, Worth,
};

use crate::executor::Executor;
use crate::scheduler::{Loan, SeqId};
pub use config::{SpeculationConfig, SpeculationStatus};
use lookup::Lookups;
use model::DraftModel;
use model::StopRule;
pub(crate) use model::{DraftTime, Wanted};
use warning::LowAcceptance;

/// All that an engine guesses with.
pub(crate) struct Drafting {
    /// Time spent in steps that decoded: the controller's clock. What it knows does not age while nothing runs.
    worked: Duration,
    controller: Controller,
    lookups: Lookups,
    model: Option<DraftModel>,
    /// What the tokens of the next drafts must be worth.
    worth: Worth,
    /// The deepest draft of the decision that was told last.
    told: Option<usize>,
    low_acceptance: LowAcceptance,
}

/// A decoding sequence, before it is decided what to draft.
pub(crate) struct Decoding<'a> {
    pub(crate) id: SeqId,
    pub(crate) salt: Option<&'a str>,
    /// Prompt and answer.
    pub(crate) tokens: &'a [u32],
    /// Most tokens to draft.
    pub(crate) max_depth: usize,
}

/// What the controller decided for one sequence.
#[derive(Debug)]
pub(crate) struct Intent {
    pub(crate) id: SeqId,
    pub(crate) source: Source,
    pub(crate) depth: usize,
    /// The draft: at first what was looked up, later what the draft model gave.
    pub(crate) draft: Vec<u32>,
    /// The draft model's confidence in each token.
    pub(crate) confidences: Vec<Confidence>,
    /// Blocks for the draft's keys and values, once they are lent.
    pub(crate) loan: Option<Loan>,
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
    /// Tokens of the sequence before the step.
    pub(crate) tokens: usize,
    /// The sequence has ended with this step.
    pub(crate) ended: bool,
}

impl Drafting {
    /// `blocks` are those of the target's cache, `rows` the most in one step.
    pub(crate) fn new(
        config: SpeculationConfig,
        draft: Option<Box<dyn Executor>>,
        blocks: usize,
        rows: usize,
    ) -> Self {
        Self {
            worked: Duration::ZERO,
            controller: Controller::new(
                config.law,
                config.drafters,
                Costs::new(DEFAULT_DRAFT_RATIO),
            ),
            lookups: Lookups::default(),
            model: draft.map(|executor| DraftModel::new(executor, blocks, rows)),
            worth: Worth::default(),
            told: None,
            low_acceptance: LowAcceptance::default(),
        }
    }

    /// Whether nothing is ever drafted.
    pub(crate) fn is_off(&self) -> bool {
        match self.controller.drafters() {
            Drafters::Off => true,
            Drafters::Model => self.model.is_none(),
            Drafters::Auto | Drafters::Ngram => false,
        }
    }

    fn looks_up(&self) -> bool {
        matches!(self.controller.drafters(), Drafters::Auto | Drafters::Ngram)
    }

    /// Changes drafters and law; what was learnt stays.
    pub(crate) fn configure(&mut self, config: SpeculationConfig) {
        self.controller.set_drafters(config.drafters);
        self.controller.set_law(config.law);
    }

    /// Decides what to draft in a step that also reads `prefill_rows` rows of prompts and has room for
    /// `row_budget` more.
    pub(crate) fn plan(
        &mut self,
        decoding: &[Decoding<'_>],
        prefill_rows: usize,
        row_budget: usize,
    ) -> (Vec<Intent>, Decision) {
        let looks_up = self.looks_up();
        let reach = self.model.as_ref().map(DraftModel::context_length);
        let mut found = Vec::with_capacity(decoding.len());
        let mut candidates = Vec::with_capacity(decoding.len());
        for one in decoding {
            let max_depth = one.max_depth.min(MAX_DEPTH);
            let lookup = if looks_up && max_depth > 0 {
                self.lookups
                    .propose(one.id, one.salt, one.tokens, max_depth)
            } else {
                None
            };
            candidates.push(Candidate {
                id: one.id.0,
                context: one.tokens.len(),
                max_depth,
                model: reach.is_some_and(|reach| one.tokens.len() + max_depth <= reach),
                lookup: lookup.as_ref().map(|found| found.lookup()),
            });
            found.push(lookup);
        }
        let now = self.worked;
        let step = Step {
            candidates: &candidates,
            prefill_rows,
            row_budget,
        };
        let Plan {
            drafts,
            decision,
            worth,
        } = self.controller.plan(now, &step);
        self.worth = worth;
        self.tell(&decision);
        let intents = decoding.iter().zip(drafts).zip(found);
        let intents = intents.map(|((one, draft), found)| intent(one.id, &draft, found));
        (intents.collect(), decision)
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

    /// Lets the draft model draft; says how long it took. One that fails is not asked again.
    pub(crate) fn draft(&mut self, wanted: &mut [Wanted<'_>], known: usize) -> DraftTime {
        let Some(model) = &mut self.model else {
            return DraftTime::default();
        };
        let stop = StopRule {
            worth: self.worth,
            calibration: self.controller.calibration(),
        };
        match model.draft(wanted, known, &stop) {
            Ok(took) => {
                for skipped in wanted.iter().filter_map(|one| one.skipped) {
                    self.controller.skipped(skipped);
                }
                took
            }
            Err(error) => {
                tracing::error!(error, "drafting failed; going on without the draft model");
                self.model = None;
                for one in wanted {
                    one.draft.clear();
                }
                DraftTime::default()
            }
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
        if let Some(model) = &mut self.model {
            for fate in fates {
                model.keep(fate.id, fate.tokens + fate.accepted);
            }
        }
        let verified: Vec<Verified> = fates
            .iter()
            .map(|fate| Verified {
                id: fate.id.0,
                source: fate.source,
                planned: fate.planned,
                drafted: fate.drafted,
                accepted: fate.accepted,
            })
            .collect();
        self.worked += step;
        let now = self.worked;
        let outcome = Outcome {
            drafts: &verified,
            context: fates.iter().map(|fate| fate.tokens).sum(),
            prefill_rows,
            verify: step.saturating_sub(drafting.passes + drafting.catching_up),
            draft: drafting.passes,
            passes: drafting.count,
            pass_rows: drafting.rows,
            catch_up: drafting.catching_up,
        };
        self.controller.observe(now, &outcome);
        for fate in fates {
            let verified = fate.confidences.get(..fate.drafted).unwrap_or_default();
            self.controller.calibrate(verified, fate.accepted);
        }
        for fate in fates.iter().filter(|fate| fate.ended) {
            self.controller.forget(fate.id.0);
        }
        let acceptance = self.controller.recent_acceptance();
        if let Some(acceptance) = self.low_acceptance.is_due(now, acceptance) {
            let advice = self.controller.advice();
            tracing::warn!(acceptance, advice, "few drafts are accepted");
        }
    }

    /// All sequences are gone, and their names may be given again.
    pub(crate) fn begin_anew(&mut self) {
        self.lookups.forget_all();
        if let Some(model) = &mut self.model {
            model.forget_all();
        }
    }

    /// A sequence lost its blocks.
    pub(crate) fn preempted(&mut self, id: SeqId) {
        if let Some(model) = &mut self.model {
            model.forget(id);
        }
    }

    /// A sequence ended with this answer.
    pub(crate) fn ended(&mut self, id: SeqId, salt: Option<&str>, answer: &[u32]) {
        self.preempted(id);
        self.lookups.forget(id);
        self.controller.forget(id.0);
        if self.looks_up() {
            self.lookups.learn(salt, answer);
        }
    }
}

fn intent(id: SeqId, draft: &Draft, found: Option<speculation::ngram::Found>) -> Intent {
    let mut tokens = match (draft.source, found) {
        (Source::Ngram(_), Some(found)) => found.tokens,
        _ => Vec::new(),
    };
    tokens.truncate(draft.depth);
    Intent {
        id,
        source: draft.source,
        depth: draft.depth,
        draft: tokens,
        confidences: Vec::new(),
        loan: None,
    }
}
