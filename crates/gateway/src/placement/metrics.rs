//! What is counted about placing requests. All names stand here.
//!
//! Events are counted as they happen, in [`Meters`] whose labels were looked up once; states (queues,
//! breakers, ledgers) are read when somebody asks, by [`States`].

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use routing::admission::RefusalCause;
use routing::decision::Reason;

use super::reading::How;
use super::report::{PoolReport, WorkerReport};
use super::shared::Shared;

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
        registry.register_collector(Box::new(States(pools.clone())));
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

#[derive(Clone, Default)]
struct Pools(Arc<Mutex<Vec<Weak<Shared>>>>);

impl Pools {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Shared>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the states of all pools when the page is asked for.
struct States(Pools);

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("States")
    }
}

type PoolGauge = (&'static str, &'static str, fn(&PoolReport) -> f64);
type WorkerGauge = (&'static str, &'static str, fn(&WorkerReport) -> Option<f64>);
type WorkerCounter = (
    &'static str,
    &'static str,
    &'static str,
    &'static [(&'static str, fn(&WorkerReport) -> u64)],
);
type WorkerState = (
    &'static str,
    &'static str,
    &'static str,
    fn(&WorkerReport) -> &'static str,
);

const POOL_GAUGES: [PoolGauge; 6] = [
    (
        "forespeak_queue_requests",
        "Requests that wait for room",
        |pool| pool.waiting_requests as f64,
    ),
    (
        "forespeak_queue_tokens",
        "KV tokens that waiting requests will take",
        |pool| pool.waiting_tokens as f64,
    ),
    (
        "forespeak_index_blocks",
        "Different blocks in the prefix index",
        |pool| pool.index.blocks as f64,
    ),
    (
        "forespeak_index_bytes",
        "Bytes of the prefix index",
        |pool| pool.index.bytes as f64,
    ),
    (
        "forespeak_index_forgotten",
        "Holdings given up for want of space; if this grows, give the index more",
        |pool| pool.index.forgotten_for_space as f64,
    ),
    (
        "forespeak_prompt_memory_bytes",
        "Bytes of the memory of prompts",
        |pool| pool.prompt_memory_bytes as f64,
    ),
];

const WORKER_GAUGES: [WorkerGauge; 9] = [
    (
        "forespeak_worker_weight",
        "Share of its fair share of work that a worker may be given",
        |worker| Some(worker.weight),
    ),
    (
        "forespeak_worker_panic",
        "1 if a worker is used only because too few others are left",
        |worker| Some(f64::from(u8::from(worker.panic))),
    ),
    (
        "forespeak_worker_in_flight",
        "Requests open at a worker",
        |worker| Some(f64::from(worker.in_flight)),
    ),
    (
        "forespeak_ledger_tokens",
        "Uncached KV tokens reserved at a worker",
        |worker| Some(worker.ledger_tokens as f64),
    ),
    (
        "forespeak_ledger_backlog_tokens",
        "Prompt tokens that a worker has still to compute",
        |worker| Some(worker.backlog_tokens as f64),
    ),
    (
        "forespeak_worker_kv_usage",
        "Share of a worker's KV cache in use, as it says",
        |worker| worker.kv_usage,
    ),
    (
        "forespeak_worker_metrics_age_seconds",
        "Age of a worker's metrics",
        |worker| worker.metrics_age,
    ),
    (
        "forespeak_worker_cache_trust",
        "Share of the predicted cached tokens that a worker reports",
        |worker| Some(worker.cache_trust),
    ),
    (
        "forespeak_kv_events_missing",
        "1 if a worker should send KV events and does not",
        |worker| Some(f64::from(u8::from(worker.kv_events_missing))),
    ),
];

const WORKER_STATES: [WorkerState; 2] = [
    (
        "forespeak_worker_condition",
        "1 for the condition that a worker is in",
        "condition",
        |worker| worker.condition,
    ),
    (
        "forespeak_worker_breaker",
        "1 for the state that a worker's circuit breaker is in",
        "state",
        |worker| worker.breaker,
    ),
];

const WORKER_COUNTERS: [WorkerCounter; 3] = [
    (
        "forespeak_kv_events",
        "Messages of KV events, by what became of them",
        "status",
        &[
            ("taken", |worker| worker.kv_events.batches),
            ("missed", |worker| worker.kv_events.missed),
            ("unreadable", |worker| worker.kv_events.unreadable),
            ("replay_asked", |worker| worker.kv_events.replays),
            ("replay_failed", |worker| worker.kv_events.replays_failed),
            ("knowledge_lost", |worker| worker.kv_events.losses),
            ("orphaned", |worker| {
                worker.cache.as_ref().map_or(0, |cache| cache.orphans)
            }),
            ("unknown_removal", |worker| {
                worker
                    .cache
                    .as_ref()
                    .map_or(0, |cache| cache.unknown_removals)
            }),
        ],
    ),
    (
        "forespeak_scrapes",
        "Metrics pages asked of workers",
        "outcome",
        &[
            ("failed", |worker| worker.scrapes.scrapes_failed),
            ("ok", |worker| {
                worker
                    .scrapes
                    .scrapes
                    .saturating_sub(worker.scrapes.scrapes_failed)
            }),
        ],
    ),
    (
        "forespeak_probes",
        "Health probes of workers",
        "outcome",
        &[
            ("failed", |worker| worker.scrapes.probes_failed),
            ("ok", |worker| {
                worker
                    .scrapes
                    .probes
                    .saturating_sub(worker.scrapes.probes_failed)
            }),
        ],
    ),
];

impl Collector for States {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let pools: Vec<Arc<Shared>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        let reports: Vec<PoolReport> = pools.iter().map(|pool| pool.report()).collect();
        for (name, help, value) in POOL_GAUGES {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for pool in &reports {
                let labels = [("pool", pool.pool.as_str())];
                ConstGauge::new(value(pool)).encode(metric.encode_family(&labels)?)?;
            }
        }
        let workers = || {
            reports.iter().flat_map(|pool| {
                let labels = |worker: &WorkerReport| {
                    [("pool", pool.pool.clone()), ("worker", worker.name.clone())]
                };
                pool.workers
                    .iter()
                    .map(move |worker| (labels(worker), worker))
            })
        };
        for (name, help, value) in WORKER_GAUGES {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, worker) in workers() {
                if let Some(value) = value(worker) {
                    ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
                }
            }
        }
        for (name, help, label, state) in WORKER_STATES {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for ([pool, of], worker) in workers() {
                let labels = [pool, of, (label, state(worker).to_owned())];
                ConstGauge::new(1_i64).encode(metric.encode_family(&labels)?)?;
            }
        }
        for (name, help, label, values) in WORKER_COUNTERS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for ([pool, of], worker) in workers() {
                for (word, value) in values {
                    let labels = [pool.clone(), of.clone(), (label, (*word).to_owned())];
                    ConstCounter::new(value(worker)).encode(metric.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}
