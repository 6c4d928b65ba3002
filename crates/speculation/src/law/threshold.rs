//! `threshold`: acceptance against fixed bounds, at fixed intervals. The law the project started from, kept
//! to be compared with.
//!
//! `a` = mean acceptance of the last 100 drafts, the latest weighing most. Every interval (10 s):
//!
//! | `a` | depth |
//! |---|---|
//! | above 0.75 | deeper by 1, at most 8 |
//! | below 0.4 | off |
//! | below 0.6 | shallower by 1, at least 2 |
//!
//! While off, one draft of 2 tokens in a twentieth of the interval probes; when the probes alone reach 0.6,
//! drafting resumes at depth 2. It starts at 4. It knows nothing of what a step costs, so it speculates
//! at batches where speculation loses.
//!
//! # Example
//! ```
//! use std::time::Duration;
//! use forespeak_speculation::law::{Evidence, Law, Threshold};
//! use forespeak_speculation::{Candidate, Outcome, Source, Step, Verified};
//!
//! let mut law = Threshold::new(Threshold::INTERVAL);
//! let step = [Candidate { id: 1, context: 9, max_depth: 16, model: true, behind: 0, lookup: None }];
//! let evidence = Evidence::default();
//! let mut depth_at = |second, accepted| {
//!     let now = Duration::from_secs(second);
//!     let drafted = law.plan(now, &Step::decoding(&step), &evidence).drafts[0].depth;
//!     let verified = Verified {
//!         id: 1, source: Source::Model, planned: drafted, drafted, accepted, lookup: None,
//!     };
//!     let took = Duration::from_millis(9);
//!     law.observe(now, &Outcome {
//!         drafts: &[verified], draft_rows: drafted, tokens: accepted + 1, context: 9, prefill_rows: 0, verify: took, draft: took, passes: drafted,
//!         pass_rows: drafted, catch_up: Duration::ZERO, caught_up: 0, read_along: 0, planning: Duration::ZERO,
//!     });
//!     drafted
//! };
//! assert_eq!(depth_at(0, 4), 4);
//! assert_eq!(depth_at(11, 5), 5); // all were accepted: deeper
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use super::fixed::uniform;
use super::{Evidence, Law, Reason};
use crate::step::{Outcome, Plan, Step};

/// Drafts looked back on.
const WINDOW: usize = 100;
/// A draft weighs this much of the one after it: the oldest of the window about a seventh of the latest.
const RECENCY: f64 = 0.98;
const DEEPER_ABOVE: f64 = 0.75;
const SHALLOWER_BELOW: f64 = 0.6;
const OFF_BELOW: f64 = 0.4;
const START: usize = 4;
const DEEPEST: usize = 8;
const SHALLOWEST: usize = 2;
/// Probes in an interval.
const PROBES: u32 = 20;

/// State of the law.
#[derive(Debug, Clone)]
pub struct Threshold {
    interval: Duration,
    depth: usize,
    rates: VecDeque<f64>,
    decided: Option<Duration>,
    probed: Duration,
    reason: Reason,
}

impl Threshold {
    /// Time between decisions, unless told otherwise.
    pub const INTERVAL: Duration = Duration::from_secs(10);

    /// Decides every `interval`.
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            depth: START,
            rates: VecDeque::with_capacity(WINDOW),
            decided: None,
            probed: Duration::ZERO,
            reason: Reason::Given,
        }
    }

    fn acceptance(&self) -> Option<f64> {
        let (mut sum, mut weights, mut weight) = (0.0, 0.0, 1.0);
        for rate in self.rates.iter().rev() {
            sum += weight * rate;
            weights += weight;
            weight *= RECENCY;
        }
        (weights > 0.0).then(|| sum / weights)
    }

    fn decide(&mut self) {
        let Some(acceptance) = self.acceptance() else {
            return;
        };
        let (depth, reason) = match self.depth {
            0 if acceptance >= SHALLOWER_BELOW => {
                (SHALLOWEST, Reason::AcceptanceHigh { acceptance })
            }
            0 => (0, Reason::AcceptanceTooLow { acceptance }),
            depth if acceptance > DEEPER_ABOVE && depth < DEEPEST => {
                (depth + 1, Reason::AcceptanceHigh { acceptance })
            }
            _ if acceptance < OFF_BELOW => (0, Reason::AcceptanceTooLow { acceptance }),
            depth if acceptance < SHALLOWER_BELOW && depth > SHALLOWEST => {
                (depth - 1, Reason::AcceptanceLow { acceptance })
            }
            depth => (depth, Reason::AcceptanceWithin { acceptance }),
        };
        (self.depth, self.reason) = (depth, reason);
        if depth == 0 {
            // The next interval is judged by its own probes.
            self.rates.clear();
        }
    }
}

impl Law for Threshold {
    fn plan(&mut self, now: Duration, step: &Step<'_>, evidence: &Evidence) -> Plan {
        let decided = *self.decided.get_or_insert(now);
        if now.saturating_sub(decided) >= self.interval {
            self.decided = Some(now);
            self.decide();
        }
        let probes = self.depth == 0 && now.saturating_sub(self.probed) >= self.interval / PROBES;
        if !probes {
            return uniform(step, evidence, |_| self.depth, self.reason);
        }
        self.probed = now;
        let prober = step
            .candidates
            .iter()
            .find(|c| c.max_depth > 0 && (c.model || c.lookup.is_some()))
            .map(|c| c.id);
        let reason = prober.map_or(self.reason, |sequence| Reason::ProbeDeeper { sequence });
        let depth = |id| if prober == Some(id) { SHALLOWEST } else { 0 };
        uniform(step, evidence, |candidate| depth(candidate.id), reason)
    }

    fn observe(&mut self, _now: Duration, outcome: &Outcome<'_>) {
        for verified in outcome.drafts.iter().filter(|v| v.drafted > 0) {
            if self.rates.len() == WINDOW {
                self.rates.pop_front();
            }
            self.rates
                .push_back(verified.accepted as f64 / verified.drafted as f64);
        }
    }

    fn forget(&mut self, _sequence: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use crate::step::{Candidate, Verified};

    fn outcome(drafts: &[Verified]) -> Outcome<'_> {
        Outcome {
            drafts,
            draft_rows: 0,
            tokens: 1,
            context: 10,
            prefill_rows: 0,
            verify: Duration::from_millis(9),
            draft: Duration::from_millis(1),
            passes: 1,
            pass_rows: 1,
            catch_up: Duration::ZERO,
            caught_up: 0,
            read_along: 0,
            planning: Duration::ZERO,
        }
    }

    /// Runs `seconds` of 100 steps each at the given acceptance and gives the depth at the end.
    fn run(law: &mut Threshold, from: u64, seconds: u64, acceptance: f64) -> usize {
        let candidate = Candidate {
            id: 1,
            context: 10,
            max_depth: 16,
            model: true,
            behind: 0,
            lookup: None,
        };
        let evidence = Evidence::default();
        for step in 0..seconds * 100 {
            let now = Duration::from_millis(from * 1000 + step * 10);
            let plan = law.plan(now, &Step::decoding(&[candidate]), &evidence);
            // Of a hundred tokens, so that every acceptance can be had.
            let drafted = if plan.drafts[0].depth > 0 { 100 } else { 0 };
            let verified = Verified {
                id: 1,
                source: Source::Model,
                planned: drafted,
                drafted,
                accepted: (drafted as f64 * acceptance) as usize,
                lookup: None,
            };
            law.observe(now, &outcome(&[verified]));
        }
        law.depth
    }

    #[test]
    fn it_stays_where_acceptance_is_neither_high_nor_low() {
        let mut law = Threshold::new(Threshold::INTERVAL);
        assert_eq!(run(&mut law, 0, 100, 0.65), 4);
        assert_eq!(law.reason.name(), "acceptance_within");
    }

    #[test]
    fn a_change_is_claimed_only_where_there_is_one() {
        let reason_after = |depth, acceptance| {
            let mut law = Threshold {
                depth,
                rates: [acceptance].into(),
                ..Threshold::new(Threshold::INTERVAL)
            };
            law.decide();
            (law.depth, law.reason.name())
        };
        assert_eq!(reason_after(7, 0.8), (8, "acceptance_high"));
        assert_eq!(reason_after(8, 0.8), (8, "acceptance_within"));
        assert_eq!(reason_after(3, 0.5), (2, "acceptance_low"));
        assert_eq!(reason_after(2, 0.5), (2, "acceptance_within"));
        assert_eq!(reason_after(2, 0.3), (0, "acceptance_too_low"));
        assert_eq!(reason_after(0, 0.5), (0, "acceptance_too_low"));
        assert_eq!(reason_after(0, 0.6), (2, "acceptance_high"));
    }

    #[test]
    fn the_latest_drafts_weigh_most_and_only_a_hundred_count() {
        let acceptance = |rates: &[f64]| {
            let mut law = Threshold::new(Threshold::INTERVAL);
            for &rate in rates {
                let verified = Verified {
                    id: 1,
                    source: Source::Model,
                    planned: 100,
                    drafted: 100,
                    accepted: (100.0 * rate) as usize,
                    lookup: None,
                };
                law.observe(Duration::ZERO, &outcome(&[verified]));
            }
            law.acceptance().unwrap()
        };
        let (good, bad) = ([1.0; 50], [0.0; 50]);
        let better = acceptance(&[bad, good].concat());
        assert!((0.7..0.8).contains(&better), "{better}");
        assert!((acceptance(&[good, bad].concat()) - (1.0 - better)).abs() < 1e-9);
        assert_eq!(acceptance(&[bad, good, good].concat()), 1.0);
    }

    #[test]
    fn it_goes_up_down_off_and_comes_back() {
        let mut law = Threshold::new(Threshold::INTERVAL);
        assert_eq!(run(&mut law, 0, 10, 1.0), 4);
        assert_eq!(run(&mut law, 10, 10, 1.0), 5);
        assert_eq!(run(&mut law, 20, 80, 1.0), 8);
        assert_eq!(run(&mut law, 100, 11, 0.5), 7);
        assert_eq!(run(&mut law, 111, 100, 0.5), 2);
        assert_eq!(run(&mut law, 211, 12, 0.0), 0);
        assert_eq!(run(&mut law, 223, 29, 0.0), 0);
        assert_eq!(run(&mut law, 252, 14, 1.0), 2);
        assert_eq!(run(&mut law, 266, 10, 1.0), 3);
    }
}
