//! What is counted about placing requests. All names stand here and in `states`.
//!
//! Events are counted as they happen, in [`Meters`] whose labels were looked up once; states (queues,
//! breakers, ledgers) are read when somebody asks, by [`States`].

mod states;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use routing::admission::RefusalCause;
use routing::decision::Reason;

use super::reading::How;
use super::shared::Shared;
use states::{Pools, States};

/// Seconds: from a repeated prompt on an idle gateway to the longest patience.
const ROUTING_BUCKETS: [f64; 16] = [
    0.000_002, 0.000_005, 0.000_01, 0.000_02, 0.000_05, 0.000_1, 0.000_25, 0.001, 0.005, 0.02, 0.1,
    0.5, 2.0, 5.0, 20.0, 60.0,
];

const CAUSES: [RefusalCause; 6] = [
    RefusalCause::NoWorkers,
    RefusalCause::TooLarge,
    RefusalCause::Pressure,
    RefusalCause::TooLong,
    RefusalCause::QueueFull,
    RefusalCause::TenantQueueFull,
];

fn cause_word(cause: RefusalCause) -> &'static str {
    match cause {
        RefusalCause::NoWorkers => "no_workers",
        RefusalCause::TooLarge => "too_large",
        RefusalCause::Pressure => "pressure",
        RefusalCause::TooLong => "too_long",
        RefusalCause::QueueFull => "queue_full",
        RefusalCause::TenantQueueFull => "tenant_queue_full",
    }
}

/// Where the time of placing goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The prompt becomes keys.
    Read,
    /// The decision.
    Desk,
    /// Waiting for room.
    Wait,
}

impl Stage {
    const ALL: [Self; 3] = [Self::Read, Self::Desk, Self::Wait];

    fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Desk => "desk",
            Self::Wait => "wait",
        }
    }
}

/// A pool and one word more.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Labels {
    pool: Arc<str>,
    kind: (&'static str, &'static str),
}

impl EncodeLabelSet for Labels {
    fn encode(
        &self,
        encoder: &mut prometheus_client::encoding::LabelSetEncoder<'_>,
    ) -> fmt::Result {
        [("pool", &*self.pool), self.kind].encode(encoder)
    }
}

/// What all pools of a gateway count. Pools given the same metrics share one page.
#[derive(Clone)]
pub struct PlacementMetrics {
    page: Arc<Page>,
}

struct Page {
    registry: Registry,
    pools: Pools,
    families: Families,
}

#[derive(Clone)]
struct Families {
    routing: Family<Labels, Histogram, fn() -> Histogram>,
    read: Family<Labels, Counter>,
    placements: Family<Labels, Counter>,
    refusals: Family<Labels, Counter>,
    cached_tokens: Family<Labels, Counter>,
    predictions: Family<Labels, Counter>,
    recyclings: Family<Labels, Counter>,
}

impl fmt::Debug for PlacementMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlacementMetrics")
    }
}

impl Default for PlacementMetrics {
    fn default() -> Self {
        let families = Families {
            routing: Family::new_with_constructor(|| Histogram::new(ROUTING_BUCKETS)),
            read: Family::default(),
            placements: Family::default(),
            refusals: Family::default(),
            cached_tokens: Family::default(),
            predictions: Family::default(),
            recyclings: Family::default(),
        };
        let pools = Pools::default();
        let mut registry = Registry::default();
        registry.register(
            "forespeak_routing_seconds",
            "Time that placing a request takes, by stage",
            families.routing.clone(),
        );
        registry.register(
            "forespeak_prompts_read",
            "Prompts read: repeated, grown from one seen before, whole, or as mere text",
            families.read.clone(),
        );
        registry.register(
            "forespeak_placements",
            "Requests placed, by what tipped the balance",
            families.placements.clone(),
        );
        registry.register(
            "forespeak_refusals",
            "Requests turned away before any worker was touched, by cause",
            families.refusals.clone(),
        );
        registry.register(
            "forespeak_cached_tokens",
            "Cached prompt tokens of finished answers, predicted and as reported by the worker",
            families.cached_tokens.clone(),
        );
        registry.register(
            "forespeak_cache_predictions",
            "Finished answers whose cached tokens were as predicted (within a block), less or more",
            families.predictions.clone(),
        );
        registry.register(
            "forespeak_recyclings",
            "Steps of restarting workers that leak or are stuck",
            families.recyclings.clone(),
        );
        registry.register_collector(Box::new(States::of(pools.clone())));
        Self {
            page: Arc::new(Page {
                registry,
                pools,
                families,
            }),
        }
    }
}

impl PlacementMetrics {
    /// Appends everything in OpenMetrics' text format, without the closing line.
    pub fn encode(&self, text: &mut String) {
        // Writing to a string cannot fail.
        let written = encode_registry(text, &self.page.registry);
        debug_assert!(written.is_ok());
    }

    /// From now on this pool's states are shown, for as long as it lives.
    pub(super) fn show(&self, pool: &Arc<Shared>) {
        let mut pools = self.page.pools.lock();
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(pool));
    }

    pub(super) fn meters(&self, pool: &Arc<str>) -> Meters {
        let families = &self.page.families;
        let labels = |name, word| Labels {
            pool: Arc::clone(pool),
            kind: (name, word),
        };
        let counter = |family: &Family<Labels, Counter>, name, word| {
            family.get_or_create_owned(&labels(name, word))
        };
        let routing = |stage: Stage| {
            families
                .routing
                .get_or_create_owned(&labels("stage", stage.word()))
        };
        Meters {
            stages: Stage::ALL.map(routing),
            read: How::ALL.map(|how| counter(&families.read, "how", how.word())),
            placements: Reason::WORDS.map(|word| counter(&families.placements, "reason", word)),
            refusals: CAUSES.map(|cause| counter(&families.refusals, "cause", cause_word(cause))),
            predicted_tokens: counter(&families.cached_tokens, "kind", "predicted"),
            reported_tokens: counter(&families.cached_tokens, "kind", "reported"),
            as_predicted: counter(&families.predictions, "outcome", "exact"),
            less_than_predicted: counter(&families.predictions, "outcome", "less"),
            more_than_predicted: counter(&families.predictions, "outcome", "more"),
            recyclings: families.recyclings.clone(),
            pool: Arc::clone(pool),
        }
    }
}

/// The counters of one pool.
pub(super) struct Meters {
    stages: [Histogram; 3],
    read: [Counter; 4],
    placements: [Counter; 10],
    refusals: [Counter; 6],
    predicted_tokens: Counter,
    reported_tokens: Counter,
    as_predicted: Counter,
    less_than_predicted: Counter,
    more_than_predicted: Counter,
    recyclings: Family<Labels, Counter>,
    pool: Arc<str>,
}

impl Meters {
    pub(super) fn took(&self, stage: Stage, time: Duration) {
        let [read, desk, wait] = &self.stages;
        let histogram = match stage {
            Stage::Read => read,
            Stage::Desk => desk,
            Stage::Wait => wait,
        };
        histogram.observe(time.as_secs_f64());
    }

    pub(super) fn read(&self, how: How) {
        let place = How::ALL.iter().position(|other| *other == how);
        if let Some(counter) = place.and_then(|place| self.read.get(place)) {
            counter.inc();
        }
    }

    pub(super) fn placed(&self, reason: &Reason) {
        if let Some(counter) = self.placements.get(reason.number()) {
            counter.inc();
        }
    }

    pub(super) fn refused(&self, cause: RefusalCause) {
        let place = CAUSES.iter().position(|other| *other == cause);
        if let Some(counter) = place.and_then(|place| self.refusals.get(place)) {
            counter.inc();
        }
    }

    pub(super) fn reported(&self, predicted: u64, reported: u64, block_tokens: u64) {
        self.predicted_tokens.inc_by(predicted);
        self.reported_tokens.inc_by(reported);
        let outcome = if predicted.abs_diff(reported) <= block_tokens {
            &self.as_predicted
        } else if reported < predicted {
            &self.less_than_predicted
        } else {
            &self.more_than_predicted
        };
        outcome.inc();
    }

    pub(super) fn recycled(&self, step: &'static str) {
        let labels = Labels {
            pool: Arc::clone(&self.pool),
            kind: ("step", step),
        };
        self.recyclings.get_or_create(&labels).inc();
    }
}
