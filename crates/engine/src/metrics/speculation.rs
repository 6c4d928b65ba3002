//! How speculation does, and what its controller decided.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use speculation::{Decision, MAX_DEPTH};

use super::{Labels, counter, names as n, register};

/// Counters of drafts, by position too.
#[derive(Debug)]
pub(super) struct SpeculationMetrics {
    drafts: Counter,
    draft_tokens: Counter,
    accepted_tokens: Counter,
    drafted_by_position: Vec<Counter>,
    accepted_by_position: Vec<Counter>,
    depth: Gauge<f64, AtomicU64>,
    speedup: Gauge<f64, AtomicU64>,
    decisions: Family<Labels<1>, Counter>,
    latest: Mutex<Option<Decision>>,
    has_model: AtomicBool,
}

impl SpeculationMetrics {
    pub(super) fn new(r: &mut Registry) -> Self {
        Self {
            drafts: counter(r, n::SPEC_DRAFTS, "Drafts verified"),
            draft_tokens: counter(r, n::SPEC_DRAFT_TOKENS, "Tokens drafted and verified"),
            accepted_tokens: counter(r, n::SPEC_ACCEPTED_TOKENS, "Drafted tokens accepted"),
            drafted_by_position: by_position(
                r,
                n::SPEC_DRAFTED_BY_POSITION,
                "Tokens drafted at each position of a draft",
            ),
            accepted_by_position: by_position(
                r,
                n::SPEC_ACCEPTED_BY_POSITION,
                "Drafted tokens accepted at each position of a draft",
            ),
            depth: register(
                r,
                n::SPEC_DEPTH,
                "Mean depth of drafts in the latest step",
                Gauge::default(),
            ),
            speedup: register(
                r,
                n::SPEC_SPEEDUP,
                "Expected tokens per second over those without speculation",
                Gauge::default(),
            ),
            decisions: register(
                r,
                n::SPEC_DECISIONS,
                "Plans by why their depth was chosen; where nothing pays, not every step has one",
                Family::default(),
            ),
            latest: Mutex::new(None),
            has_model: AtomicBool::new(false),
        }
    }

    pub(super) fn drafts(&self) -> u64 {
        self.drafts.get()
    }

    pub(super) fn latest(&self) -> Option<Decision> {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has_model(&self) -> bool {
        self.has_model.load(Ordering::Relaxed)
    }

    /// Whether there is a draft model that works, and anybody who may draft.
    pub(super) fn drafters_are(&self, has_model: bool, anybody: bool) {
        self.has_model.store(has_model, Ordering::Relaxed);
        if !anybody {
            self.holds(&Decision::NOTHING_TO_DRAFT);
        }
    }

    pub(super) fn draft_tokens(&self) -> u64 {
        self.draft_tokens.get()
    }

    pub(super) fn accepted_tokens(&self) -> u64 {
        self.accepted_tokens.get()
    }

    /// A step was planned.
    pub(super) fn decided(&self, decision: &Decision) {
        self.holds(decision);
        let label = [(n::LABEL_REASON, decision.reason.name())];
        self.decisions.get_or_create(&label).inc();
    }

    /// From now on this is so, until something else is decided.
    fn holds(&self, decision: &Decision) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(*decision);
        self.depth.set(decision.depth);
        self.speedup.set(decision.speedup);
    }

    pub(super) fn verified(&self, drafted: usize, accepted: usize) {
        self.drafts.inc();
        self.draft_tokens.inc_by(drafted as u64);
        self.accepted_tokens.inc_by(accepted as u64);
        for counter in self.drafted_by_position.iter().take(drafted) {
            counter.inc();
        }
        for counter in self.accepted_by_position.iter().take(accepted) {
            counter.inc();
        }
    }
}

/// One counter for each position, known from the start.
fn by_position(registry: &mut Registry, name: &str, help: &str) -> Vec<Counter> {
    let family: Family<Vec<(&'static str, usize)>, Counter> =
        register(registry, name, help, Family::default());
    (0..MAX_DEPTH)
        .map(|position| family.get_or_create_owned(&vec![(n::LABEL_POSITION, position)]))
        .collect()
}
