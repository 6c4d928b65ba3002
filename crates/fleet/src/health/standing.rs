//! Who of a pool may be given work: conditions and breakers together, and never nobody.
//!
//! Ejecting is only safe while somebody is left. Two rules keep it so:
//! 1. If fewer than the panic share of a pool's workers are fit, those ejected on mere suspicion (stale
//!    metrics, a standstill, an open breaker) come back at [`PANIC_WEIGHT`]: when half the fleet looks
//!    ill, it is more likely that our view of it is.
//! 2. If nobody at all is left, everyone who is not draining comes back, even workers found dead: a
//!    refused connection costs a millisecond, and the first one to return is used at once.
//!
//! Workers found dead never come back by rule 1, so that a killed worker gets no traffic while any other
//! lives; draining ones never come back at all.

use super::Condition;
use crate::breaker::BreakerState;

/// The weight of a worker that is suspected and needed all the same.
pub const PANIC_WEIGHT: f64 = 0.25;

/// The weight of a worker whose breaker is half open: it needs a few requests to prove itself.
pub const TRIAL_WEIGHT: f64 = 0.25;

/// When suspicion is set aside.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PanicConfig {
    /// Share of a pool's workers, draining ones left out, that must be fit.
    pub fit_share: f64,
}

impl Default for PanicConfig {
    fn default() -> Self {
        Self { fit_share: 0.5 }
    }
}

/// What is known of one worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// From its health.
    pub condition: Condition,
    /// From its breaker.
    pub breaker: BreakerState,
    /// Whether the breaker would let a request through.
    pub admits: bool,
}

/// What follows for one worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standing {
    /// How much traffic it may take: 0 none, 1 its full share.
    pub weight: f64,
    /// Whether it is used only because too few others are left.
    pub panic: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Fitness {
    Fit(f64),
    Suspected,
    Out,
    Going,
}

fn fitness(candidate: &Candidate) -> Fitness {
    match (candidate.condition, candidate.breaker) {
        (Condition::Draining(_), _) => Fitness::Going,
        (Condition::Starting | Condition::Asleep | Condition::Down(_), _) => Fitness::Out,
        (Condition::Wedged | Condition::Stale, _) | (_, BreakerState::Open) => Fitness::Suspected,
        (Condition::Healthy { .. }, BreakerState::HalfOpen) if !candidate.admits => {
            Fitness::Suspected
        }
        (Condition::Healthy { weight }, BreakerState::HalfOpen) => {
            Fitness::Fit(weight.min(TRIAL_WEIGHT))
        }
        (Condition::Healthy { weight }, BreakerState::Closed) => Fitness::Fit(weight),
    }
}

/// The standing of every worker of a pool, in the order given.
///
/// ```
/// # use forespeak_fleet as fleet;
/// use fleet::breaker::BreakerState;
/// use fleet::health::{Candidate, Condition, DownReason, PanicConfig, standings};
///
/// let worker = |condition| Candidate { condition, breaker: BreakerState::Closed, admits: true };
/// let healthy = worker(Condition::Healthy { weight: 1.0 });
/// let stale = worker(Condition::Stale);
/// let dead = worker(Condition::Down(DownReason::Unreachable));
/// let weights = |pool: &[Candidate]| -> Vec<f64> {
///     standings(pool, PanicConfig::default()).iter().map(|standing| standing.weight).collect()
/// };
/// assert_eq!(weights(&[healthy, healthy, stale, dead]), [1.0, 1.0, 0.0, 0.0]);
/// assert_eq!(weights(&[healthy, stale, stale, dead]), [1.0, 0.25, 0.25, 0.0]);
/// assert_eq!(weights(&[dead, dead]), [0.25, 0.25]);
/// ```
pub fn standings(pool: &[Candidate], config: PanicConfig) -> Vec<Standing> {
    let found: Vec<Fitness> = pool.iter().map(fitness).collect();
    let count = |wanted: fn(&Fitness) -> bool| found.iter().filter(|one| wanted(one)).count();
    let staying = count(|one| *one != Fitness::Going);
    let fit = count(|one| matches!(one, Fitness::Fit(_)));
    let suspected = count(|one| *one == Fitness::Suspected);
    let too_few = (fit as f64) < config.fit_share.clamp(0.0, 1.0) * staying as f64;
    let nobody = fit == 0;
    let nobody_at_all = nobody && suspected == 0;
    found
        .iter()
        .map(|one| match one {
            Fitness::Fit(weight) => Standing {
                weight: *weight,
                panic: false,
            },
            Fitness::Suspected if too_few || nobody => Standing {
                weight: PANIC_WEIGHT,
                panic: true,
            },
            Fitness::Out if nobody_at_all => Standing {
                weight: PANIC_WEIGHT,
                panic: true,
            },
            Fitness::Suspected | Fitness::Out | Fitness::Going => Standing {
                weight: 0.0,
                panic: false,
            },
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::{DownReason, DrainReason};
    use super::*;
    use proptest::prelude::*;

    fn any_candidate() -> impl Strategy<Value = Candidate> {
        let condition = prop_oneof![
            Just(Condition::Starting),
            (0.01..=1.0_f64).prop_map(|weight| Condition::Healthy { weight }),
            Just(Condition::Wedged),
            Just(Condition::Stale),
            Just(Condition::Asleep),
            Just(Condition::Down(DownReason::Unreachable)),
            Just(Condition::Draining(DrainReason::Operator)),
        ];
        let breaker = prop_oneof![
            Just((BreakerState::Closed, true)),
            Just((BreakerState::Open, false)),
            any::<bool>().prop_map(|admits| (BreakerState::HalfOpen, admits)),
        ];
        (condition, breaker).prop_map(|(condition, (breaker, admits))| Candidate {
            condition,
            breaker,
            admits,
        })
    }

    proptest! {
        #[test]
        fn never_all_are_ejected(pool in proptest::collection::vec(any_candidate(), 1..12)) {
            let standings = standings(&pool, PanicConfig::default());
            let going = |candidate: &Candidate| matches!(candidate.condition, Condition::Draining(_));
            prop_assert_eq!(standings.len(), pool.len());
            prop_assert_eq!(
                standings.iter().any(|standing| standing.weight > 0.0),
                pool.iter().any(|candidate| !going(candidate))
            );
            for (standing, candidate) in standings.iter().zip(&pool) {
                prop_assert!((0.0..=1.0).contains(&standing.weight));
                prop_assert!(!going(candidate) || standing.weight == 0.0);
                let dead = matches!(candidate.condition, Condition::Down(_));
                let others = pool.iter().any(|other| {
                    other.condition.is_healthy() && other.breaker == BreakerState::Closed
                });
                prop_assert!(!(dead && others) || standing.weight == 0.0);
            }
        }
    }
}
