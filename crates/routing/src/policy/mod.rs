//! How a worker is chosen: one file per policy, each with its formula.
//!
//! A policy is a pure function of the request, the workers and a [`Draw`]. Two calls with equal arguments give
//! equal decisions, so that a decision can be replayed, explained and simulated.

mod fit;
mod least_loaded;
mod lmetric;
mod prefix;
mod round_robin;
mod sticky;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::decision::{Candidate, Decision, Exclusion, Terms};
use crate::hash::mix;
use crate::request::RequestView;
use crate::worker::WorkerView;

/// The policies by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Each in turn.
    RoundRobin,
    /// Fewest requests for its weight.
    LeastLoaded,
    /// The same session to the same worker, within a bound on its load.
    Sticky,
    /// The longest cached prefix, within a load window.
    Prefix,
    /// New prompt tokens times batch size.
    Lmetric,
    /// Where it fits: cached prefix, predicted queueing and KV headroom in one cost.
    #[default]
    Fit,
}

impl Policy {
    /// All of them, simplest first.
    pub const ALL: [Self; 6] = [
        Self::RoundRobin,
        Self::LeastLoaded,
        Self::Sticky,
        Self::Prefix,
        Self::Lmetric,
        Self::Fit,
    ];

    /// Its name in configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::LeastLoaded => "least_loaded",
            Self::Sticky => "sticky",
            Self::Prefix => "prefix",
            Self::Lmetric => "lmetric",
            Self::Fit => "fit",
        }
    }

    /// Chooses a worker; `None` only if no worker may get traffic at all.
    pub fn decide(
        self,
        request: &RequestView<'_>,
        workers: &[WorkerView],
        draw: Draw,
    ) -> Option<Decision> {
        match self {
            Self::RoundRobin => round_robin::decide(workers, draw),
            Self::LeastLoaded => least_loaded::decide(workers, draw),
            Self::Sticky => sticky::decide(request, workers),
            Self::Prefix => prefix::decide(request, workers, draw),
            Self::Lmetric => lmetric::decide(request, workers, draw),
            Self::Fit => fit::decide(request, workers, draw),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Policy {
    type Err = crate::RoutingError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|policy| policy.name() == name)
            .ok_or_else(|| crate::RoutingError::UnknownPolicy {
                name: name.to_owned(),
            })
    }
}

/// Chance and order, given from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Draw {
    /// How many requests were decided before this one.
    pub turn: u64,
    /// A random number; equal scores are told apart with it.
    pub random: u64,
}

/// May get traffic.
fn open(worker: &WorkerView) -> bool {
    worker.weight > 0.0
}

/// The entry of a worker that may get no traffic.
fn closed(worker: &WorkerView) -> Candidate {
    Candidate {
        worker: worker.id,
        terms: Terms::default(),
        score: f64::INFINITY,
        excluded: Some(Exclusion::NoTraffic),
    }
}

/// The lowest score among those not excluded; equal ones are told apart by chance, so that nobody who happens
/// to stand first in a list is preferred.
fn lowest(candidates: &[Candidate], draw: Draw) -> Option<&Candidate> {
    candidates
        .iter()
        .filter(|candidate| candidate.excluded.is_none())
        .min_by(|a, b| {
            let lot = |c: &Candidate| mix(draw.random ^ mix(u64::from(c.worker.0)));
            a.score
                .total_cmp(&b.score)
                .then_with(|| lot(a).cmp(&lot(b)))
        })
}
