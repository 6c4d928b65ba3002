//! The one thing an engine holds: evidence, and a law that decides by it.

use std::time::Duration;

use crate::acceptance::{Acceptance, Seen};
use crate::confidence::{Calibration, Confidence};
use crate::cost::{Costs, StepShape};
use crate::law::{Evidence, Law, LawSpec};
use crate::low_acceptance::{LowAcceptance, Watch};
use crate::source::Source;
use crate::step::{Outcome, Plan, Step, Verified};

/// Plans steps and learns from them. The law can be changed while it runs; what was learnt stays.
#[derive(Debug)]
pub struct Controller {
    evidence: Evidence,
    spec: LawSpec,
    law: Box<dyn Law>,
    calibration: Calibration,
    watch: Watch,
}

impl Default for Controller {
    fn default() -> Self {
        Self::new(LawSpec::default(), Costs::default())
    }
}

impl Controller {
    /// A controller that knows nothing yet. `costs` carries a guess of the draft model's cost.
    pub fn new(spec: LawSpec, costs: Costs) -> Self {
        Self {
            evidence: Evidence {
                acceptance: Acceptance::default(),
                costs,
            },
            spec,
            law: spec.build(),
            calibration: Calibration::default(),
            watch: Watch::default(),
        }
    }

    /// Decides what to draft in the next step.
    pub fn plan(&mut self, now: Duration, step: &Step<'_>) -> Plan {
        self.law.plan(now, step, &self.evidence)
    }

    /// Learns from a step that ran.
    pub fn observe(&mut self, now: Duration, outcome: &Outcome<'_>) {
        for verified in outcome.drafts {
            self.judge(now, verified);
        }
        let shape = StepShape {
            sequences: outcome.drafts.len(),
            drafted: outcome.draft_rows,
            context: outcome.context,
        };
        let costs = &mut self.evidence.costs;
        // Rows of prompts drown the difference that drafts make. And behind all that the draft model has read the target finds the
        // caches empty: a short step, of one sequence, takes half as long again.
        let swept = outcome.caught_up > 0 && shape.sequences == 1;
        if outcome.prefill_rows == 0 && !swept {
            costs.observe_verify(now, &shape, outcome.verify);
        }
        costs.observe_planning(outcome.drafts.len(), outcome.planning);
        let context = outcome.context / outcome.drafts.len().max(1);
        let (passes, rows) = (outcome.passes, outcome.pass_rows);
        costs.observe_catch_up(outcome.caught_up, outcome.catch_up);
        // A pass is what comes once for every token of a draft; half of the time at least, whatever reading is believed to take.
        let along = Duration::from_secs_f64(costs.catch_up(outcome.read_along));
        let drafting = outcome.draft.saturating_sub(along).max(outcome.draft / 2);
        costs.observe_draft(now, passes, rows, context, drafting);
        self.law.observe(now, outcome);
    }

    /// Learns what drafts are worth: from the one that was made, and from what a lookup had found beside or behind it.
    fn judge(&mut self, now: Duration, verified: &Verified) {
        let Verified { id, source, .. } = *verified;
        let acceptance = &mut self.evidence.acceptance;
        let seen = Seen {
            planned: verified.planned,
            drafted: verified.drafted,
            accepted: verified.accepted,
        };
        acceptance.count(source, seen);
        if source.runs_a_model() || verified.lookup.is_none() {
            acceptance.learn(now, id, source, seen);
        }
        if let Some(found) = verified.lookup {
            let seen = Seen {
                planned: found.compared,
                drafted: found.compared,
                accepted: found.agreed,
            };
            acceptance.learn(now, id, Source::Ngram(found.strength), seen);
        }
    }

    /// Learns how far the draft model knew what it was worth: its confidence in the tokens of a draft, and how many
    /// of them were accepted.
    pub fn calibrate(&mut self, confidences: &[Confidence], accepted: usize) {
        let reached = confidences.iter().take(accepted + 1);
        for (position, &confidence) in reached.enumerate() {
            let accepted = position < accepted;
            self.calibration.observe(confidence, accepted);
        }
    }

    /// The draft model ended a draft with a token of this confidence, which was not kept.
    pub fn skipped(&mut self, confidence: Confidence) {
        self.calibration.skip(confidence);
    }

    /// What the draft model's confidence is worth.
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// Forgets a sequence that ended.
    pub fn forget(&mut self, sequence: u64) {
        self.evidence.acceptance.forget(sequence);
        self.law.forget(sequence);
    }

    /// Changes the law. The one in force goes on with all it knows.
    pub fn set_law(&mut self, spec: LawSpec) {
        if spec != self.spec {
            self.spec = spec;
            self.law = spec.build();
        }
    }

    /// The law in force.
    pub fn law(&self) -> LawSpec {
        self.spec
    }

    /// What was learnt.
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// Whose drafts have hardly ever been accepted for long, if that is to be said now.
    pub fn low_acceptance(&mut self, now: Duration) -> Option<LowAcceptance> {
        self.watch.look(now, &self.evidence.acceptance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Strength;
    use crate::step::Looked;

    #[test]
    fn a_lookup_is_known_to_hit_though_the_model_drafts() {
        let mut controller = Controller::default();
        let lookup = Source::Ngram(Strength::Fair);
        let first = |controller: &Controller| {
            let acceptance = &controller.evidence().acceptance;
            acceptance.survival(99, lookup)[0]
        };
        assert!(first(&controller) < 0.6);
        for step in 0..40 {
            let verified = Verified {
                id: 1,
                source: Source::Model,
                planned: 2,
                drafted: 2,
                accepted: 1,
                lookup: Some(Looked::compare(Strength::Fair, &[7, 8, 9], &[7, 8])),
            };
            controller.judge(Duration::from_millis(step), &verified);
        }
        assert!(first(&controller) > 0.9, "{}", first(&controller));
        let totals = controller.evidence().acceptance.totals(lookup);
        assert_eq!(totals.drafts, 0, "none was made");
    }
}
