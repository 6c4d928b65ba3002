//! `fixed:K`: the same depth for everybody, always.

use std::time::Duration;

use super::arm::Arm;
use super::step_costs::StepCosts;
use super::{Decision, Evidence, Law, Reason};
use crate::source::{Source, Strength};
use crate::step::{Candidate, Draft, Lookup, Outcome, Plan, Step};
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
/// before the model, for they cost nothing; but a model knows better than where a single token stood before.
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
            let better = |found: &Lookup| !candidate.model || found.strength > Strength::Faint;
            let (source, limit) = match candidate.lookup.filter(better) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_go_before_the_model_but_for_faint_ones() {
        let source = |strength, model| {
            let candidate = Candidate {
                id: 1,
                context: 9,
                max_depth: 8,
                model,
                behind: 0,
                lookup: Some(Lookup {
                    length: 8,
                    strength,
                }),
            };
            let step = [candidate];
            let evidence = Evidence::default();
            let plan = Fixed::new(3).plan(Duration::ZERO, &Step::decoding(&step), &evidence);
            (plan.drafts[0].source, plan.drafts[0].depth)
        };
        let (faint, weak) = (Strength::Faint, Strength::Weak);
        assert_eq!(source(weak, true), (Source::Ngram(weak), 3));
        assert_eq!(source(faint, true), (Source::Model, 3));
        assert_eq!(source(faint, false), (Source::Ngram(faint), 3));
    }
}
