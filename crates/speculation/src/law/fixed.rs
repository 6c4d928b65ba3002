//! `fixed:K`: the same depth for everybody, always.

use std::time::Duration;

use super::arm::Arm;
use super::step_costs::StepCosts;
use super::{Decision, Evidence, Law, Reason};
use crate::source::Source;
use crate::step::{Candidate, Draft, Outcome, Plan, Step};
use crate::worth::Worth;

/// A given depth.
#[derive(Debug, Clone, Copy)]
pub struct Fixed {
    depth: usize,
}

impl Fixed {
    /// Every draft has `depth` tokens, or as many as can be drafted.
    pub fn new(depth: usize) -> Self {
        Self { depth }
    }
}

impl Law for Fixed {
    fn plan(&mut self, _now: Duration, step: &Step<'_>, evidence: &Evidence) -> Plan {
        uniform(step, evidence, |_| self.depth, Reason::Given)
    }

    fn observe(&mut self, _now: Duration, _outcome: &Outcome<'_>) {}

    fn forget(&mut self, _sequence: u64) {}
}

/// A plan with a depth that does not depend on what it earns: the expectation is only for show. Lookups go
/// before the model, for they cost nothing.
pub(super) fn uniform(
    step: &Step<'_>,
    evidence: &Evidence,
    depth: impl Fn(&Candidate) -> usize,
    reason: Reason,
) -> Plan {
    let mut rows = step.row_budget;
    let drafts: Vec<Draft> = step
        .candidates
        .iter()
        .map(|candidate| {
            let (source, limit) = match candidate.lookup {
                Some(found) if found.length > 0 => (Source::Ngram(found.strength), found.length),
                _ => (Source::Model, if candidate.model { usize::MAX } else { 0 }),
            };
            let depth = depth(candidate)
                .min(limit)
                .min(candidate.max_depth)
                .min(rows);
            rows -= depth;
            Draft {
                id: candidate.id,
                source,
                depth,
                room: depth,
                probes: false,
            }
        })
        .collect();
    let arms: Vec<Arm> = drafts
        .iter()
        .map(|draft| Arm::new(evidence, draft.id, draft.source, draft.depth))
        .collect();
    let depths: Vec<usize> = drafts.iter().map(|draft| draft.depth).collect();
    let costs = StepCosts::new(step, evidence, &arms);
    let decision = Decision::of(&depths, costs.speedup(&arms, &depths), reason);
    Plan {
        drafts,
        decision,
        worth: Worth::default(),
        pause: Duration::ZERO,
    }
}
