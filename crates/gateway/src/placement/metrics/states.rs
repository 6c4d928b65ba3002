//! States of pools and workers, read when somebody asks for the page.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::placement::report::{PoolReport, WorkerReport};
use crate::placement::shared::Shared;

/// The pools that are shown, for as long as they live.
#[derive(Clone, Default)]
pub(super) struct Pools(Arc<Mutex<Vec<Weak<Shared>>>>);

impl Pools {
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Weak<Shared>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the states of all pools when the page is asked for.
pub(super) struct States(Pools);

impl States {
    pub(super) fn of(pools: Pools) -> Self {
        Self(pools)
    }
}

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
