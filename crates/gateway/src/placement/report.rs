//! A pool as it is now, for the admin endpoint and the metrics page.

use fleet::breaker::BreakerState;
use fleet::kv_events::EventCounts;
use fleet::{ScrapeCounts, Snapshot};
use routing::index::{IndexStats, WorkerKnowledge};
use serde::Serialize;

use super::account::Account;
use super::books::{Books, Now};

/// A pool as it is now.
#[derive(Debug, Clone, Serialize)]
pub struct PoolReport {
    /// What it is called.
    pub pool: String,
    /// How it chooses.
    pub policy: &'static str,
    /// Requests that wait for room.
    pub waiting_requests: usize,
    /// What they will take, in KV tokens.
    pub waiting_tokens: u64,
    /// Size and losses of the prefix index.
    pub index: IndexStats,
    /// Bytes of the memory of prompts.
    pub prompt_memory_bytes: usize,
    /// Its workers, by number.
    pub workers: Vec<WorkerReport>,
}

/// A worker as it is now.
#[derive(Debug, Clone, Serialize)]
pub struct WorkerReport {
    /// Its number in decisions.
    pub number: u16,
    /// What it is called.
    pub name: String,
    /// Where it listens.
    pub url: String,
    /// How it is, in a word.
    pub condition: &'static str,
    /// Where its breaker stands.
    pub breaker: &'static str,
    /// Whether other gateways find it ill, and this one has not seen it well since.
    pub doubted: bool,
    /// Share of its fair share of work that it may be given; 0 for none.
    pub weight: f64,
    /// Whether it is used only because too few others are left.
    pub panic: bool,
    /// Requests open there from this gateway.
    pub in_flight: u32,
    /// What they hold by our books, in uncached KV tokens.
    pub ledger_tokens: u64,
    /// Prompt tokens of ours that it has still to compute.
    pub backlog_tokens: u64,
    /// Tokens its cache holds, if it says so.
    pub kv_capacity_tokens: Option<u64>,
    /// Share of its cache in use, if it says so.
    pub kv_usage: Option<f64>,
    /// Requests it works on, if it says so.
    pub running: Option<u32>,
    /// Requests that wait in it, if it says so.
    pub waiting: Option<u32>,
    /// Age of its metrics in seconds; `None` before the first.
    pub metrics_age: Option<f64>,
    /// Share of the cached tokens we predict that it then reports.
    pub cache_trust: f64,
    /// Share of its answers whose cached tokens were predicted within one block.
    pub predicted_within_a_block: f64,
    /// How well its cache is known.
    pub cache: Option<WorkerKnowledge>,
    /// Whether it should send KV events and does not.
    pub kv_events_missing: bool,
    /// What its subscribers have seen.
    #[serde(skip)]
    pub kv_events: EventCounts,
    /// What became of scrapes and probes.
    #[serde(skip)]
    pub scrapes: ScrapeCounts,
}

/// Where a breaker stands, in a word.
pub(super) fn breaker_word(state: BreakerState) -> &'static str {
    match state {
        BreakerState::Closed => "closed",
        BreakerState::Open => "open",
        BreakerState::HalfOpen => "half_open",
    }
}

impl Books {
    /// The workers as they are now.
    pub(super) fn report(&self, fleet: &Snapshot, now: Now) -> Vec<WorkerReport> {
        self.standings(fleet, now)
            .into_iter()
            .filter_map(|(worker, standing)| {
                let account = self.account(worker.id())?;
                let mut report = account.report(now);
                (report.weight, report.panic) = (standing.weight, standing.panic);
                report.cache = self.index.knowledge(worker.id());
                Some(report)
            })
            .collect()
    }
}

impl Account {
    fn report(&self, now: Now) -> WorkerReport {
        let worker = &self.worker;
        let seen = worker.sighting();
        let page = seen.as_ref().map(|seen| &seen.observation);
        let view = worker.view(
            0.0,
            Default::default(),
            1.0,
            Default::default(),
            now.instant,
        );
        let ledger = self.ledger.view(now.since_start, view.prefill_rate());
        WorkerReport {
            number: worker.id().0,
            name: worker.name().to_owned(),
            url: worker.spec().url.to_string(),
            condition: worker.condition(now.instant).word(),
            breaker: breaker_word(worker.breaker(now.instant)),
            doubted: worker.is_doubted(now.instant),
            weight: 0.0,
            panic: false,
            in_flight: worker.in_flight(),
            ledger_tokens: self.ledger.kv_tokens(),
            backlog_tokens: ledger.prefill_backlog_tokens,
            kv_capacity_tokens: page.and_then(|page| page.cache.capacity_tokens),
            kv_usage: page.and_then(|page| page.kv_usage),
            running: page.and_then(|page| page.running),
            waiting: page.and_then(|page| page.waiting),
            metrics_age: worker.metrics_age(now.instant).map(|age| age.as_secs_f64()),
            cache_trust: self.calibration.trust(),
            predicted_within_a_block: self.calibration.exact_share(),
            cache: None,
            kv_events_missing: self.events_missing,
            kv_events: worker.events.read(),
            scrapes: worker.scrapes.read(),
        }
    }
}
