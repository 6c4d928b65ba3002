//! One worker: what is configured, what was seen, and what may be sent to it.
//!
//! Readers on the way of a request never wait: the last sighting is swapped in whole, and the lock around
//! health and breaker is held for a few instructions by whoever has news.

mod attempt;
mod scrape_counters;
mod sighting;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use routing::{LedgerView, Speeds, WorkerId, WorkerView};
use tokio::sync::Notify;

use crate::breaker::{Breaker, BreakerConfig, BreakerState, Permit};
use crate::health::{Candidate, Condition, DrainReason, Draining, Health, HealthConfig, Signal};
use crate::hearsay::Hearsay;
use crate::kv_events::EventCounters;
use crate::observe::Observation;
use crate::observe::orca::LoadReport;
use crate::recycle::Evidence;
use crate::spec::WorkerSpec;

pub use attempt::{Attempt, Fault};
pub use scrape_counters::{ScrapeCounters, ScrapeCounts};
pub use sighting::Sighting;

/// Metrics older than this are late: two turns of the scrape loop. What answers say about their worker's load is news then.
const LATE_METRICS: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Judgement {
    health: Health,
    breaker: Breaker,
    hearsay: Option<Hearsay>,
}

impl Judgement {
    fn is_doubted(&self, now: Instant) -> bool {
        let last_alive = self.health.last_alive();
        self.hearsay
            .is_some_and(|hearsay| hearsay.stands(last_alive, now))
    }
}

/// A worker of the fleet.
#[derive(Debug)]
pub struct Worker {
    id: WorkerId,
    spec: WorkerSpec,
    sighting: ArcSwapOption<Sighting>,
    judgement: Mutex<Judgement>,
    in_flight: AtomicU32,
    /// KV event counters.
    pub events: Arc<EventCounters>,
    /// Scrape and probe counters.
    pub scrapes: ScrapeCounters,
    pub(crate) probe_now: Notify,
    pub(crate) scrape_now: Notify,
}

impl Worker {
    pub(crate) fn new(
        id: WorkerId,
        spec: WorkerSpec,
        health: HealthConfig,
        breaker: BreakerConfig,
        now: Instant,
    ) -> Self {
        Self {
            id,
            spec,
            sighting: ArcSwapOption::empty(),
            judgement: Mutex::new(Judgement {
                health: Health::new(health),
                breaker: Breaker::new(breaker, now),
                hearsay: None,
            }),
            in_flight: AtomicU32::new(0),
            events: Arc::default(),
            scrapes: ScrapeCounters::default(),
            probe_now: Notify::new(),
            scrape_now: Notify::new(),
        }
    }

    /// Its number.
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// What was configured.
    pub fn spec(&self) -> &WorkerSpec {
        &self.spec
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        self.spec.name()
    }

    /// The last page of metrics, if any came.
    pub fn sighting(&self) -> Option<Arc<Sighting>> {
        self.sighting.load_full()
    }

    /// Age of the last page.
    pub fn metrics_age(&self, now: Instant) -> Option<Duration> {
        let seen = self.sighting.load();
        seen.as_ref()
            .map(|seen| now.saturating_duration_since(seen.at))
    }

    /// Whether an answer may tell its load: its metrics page is late.
    pub fn wants_load_report(&self, now: Instant) -> bool {
        self.metrics_age(now).is_some_and(|age| age >= LATE_METRICS)
    }

    /// Takes in what an answer said about its load. How many requests run there it does not say: as many as are ours, as
    /// far as we know.
    pub fn reported(&self, report: LoadReport, now: Instant) {
        if !self.wants_load_report(now) {
            return;
        }
        let Some(last) = self.sighting.load_full() else {
            return;
        };
        let mut seen = Sighting::clone(&last);
        seen.observation.kv_usage = report.kv_usage.or(seen.observation.kv_usage);
        seen.observation.waiting = report.waiting.or(seen.observation.waiting);
        seen.observation.running = Some(self.in_flight());
        (seen.asked, seen.at) = (now, now);
        self.sighting.store(Some(Arc::new(seen)));
    }

    /// Health and breaker together, for [`crate::health::standings`]. What others say counts like an open
    /// breaker: it makes a worker suspected, and the suspected are never all left out.
    pub fn candidate(&self, now: Instant) -> Candidate {
        let judgement = self.judgement();
        let is_doubted = judgement.is_doubted(now);
        Candidate {
            condition: judgement.health.condition(now),
            breaker: if is_doubted {
                BreakerState::Open
            } else {
                judgement.breaker.state(now)
            },
            admits: !is_doubted && judgement.breaker.would_admit(now),
        }
    }

    /// Takes in what other gateways say of it; `None` is nothing bad. What is new is looked into at once.
    pub fn advise(&self, hearsay: Option<Hearsay>, now: Instant) {
        let is_new = {
            let mut judgement = self.judgement();
            let before = judgement.is_doubted(now);
            judgement.hearsay = hearsay;
            !before && judgement.is_doubted(now)
        };
        if is_new {
            tracing::info!(worker = %self.name(), "another gateway finds this worker ill; looking again");
            self.probe_now.notify_one();
        }
    }

    /// Whether others find it ill and we have not seen it well since.
    pub fn is_doubted(&self, now: Instant) -> bool {
        self.judgement().is_doubted(now)
    }

    /// How it is.
    pub fn condition(&self, now: Instant) -> Condition {
        self.judgement().health.condition(now)
    }

    /// How it would be if it were not draining.
    pub fn underlying_condition(&self, now: Instant) -> Condition {
        self.judgement().health.underlying(now)
    }

    /// Whether requests are running there and nothing moves.
    pub fn is_wedged(&self, now: Instant) -> bool {
        self.judgement().health.is_wedged(now)
    }

    /// How fast it was seen to be.
    pub fn speeds(&self) -> Speeds {
        let seen = self.sighting.load();
        let Some(seen) = seen.as_ref() else {
            return Speeds::default();
        };
        Speeds {
            prefill_tokens_per_second: seen.smoothed.prefill_tokens_per_second,
            inter_token: seen
                .smoothed
                .itl_seconds
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        }
    }

    /// What a policy is told about it: the last page, the books of this gateway, and the weight that its
    /// pool's [`standings`](crate::health::standings) give it. Speeds that were never measured are those of
    /// `peers`, or else what `routing` assumes.
    pub fn view(
        &self,
        weight: f64,
        ledger: LedgerView,
        hit_trust: f64,
        peers: Speeds,
        now: Instant,
    ) -> WorkerView {
        let idle = WorkerView::idle(self.id, 0);
        let seen = self.sighting.load();
        let Some(seen) = seen.as_ref() else {
            return WorkerView {
                weight,
                ledger,
                hit_trust,
                metrics_age: Duration::MAX,
                ..idle.at_speeds(peers)
            };
        };
        let page = &seen.observation;
        WorkerView {
            weight,
            kv_capacity_tokens: page.cache.capacity_tokens.unwrap_or(0),
            kv_usage: page.kv_usage.unwrap_or(0.0),
            running: page.running.unwrap_or(0),
            waiting: page.waiting.unwrap_or(0),
            metrics_age: now.saturating_duration_since(seen.at),
            ledger,
            hit_trust,
            ..idle.at_speeds(self.speeds().or(peers))
        }
    }

    /// What the recycler wants to know; `claimed_tokens` is the most KV cache that the requests open
    /// there can hold by the caller's books.
    pub fn evidence(&self, claimed_tokens: u64, now: Instant) -> Evidence {
        let seen = self.sighting.load();
        let observation = seen.as_ref().map(|seen| &seen.observation);
        let requests = |seen: &Observation| {
            let (running, waiting) = (seen.running.unwrap_or(0), seen.waiting.unwrap_or(0));
            running.saturating_add(waiting)
        };
        let judgement = self.judgement();
        Evidence {
            worker: self.id,
            fit: judgement.health.underlying(now).is_healthy(),
            wedged: judgement.health.is_wedged(now),
            draining: judgement.health.draining().is_some(),
            reported_tokens: observation.and_then(Observation::kv_used_tokens),
            capacity_tokens: observation.and_then(|seen| seen.cache.capacity_tokens),
            reported_requests: observation.map_or(0, requests),
            claimed_tokens,
            in_flight: self.in_flight(),
        }
    }

    /// Where its breaker stands.
    pub fn breaker(&self, now: Instant) -> BreakerState {
        self.judgement().breaker.state(now)
    }

    /// Whether it is draining, why and since when.
    pub fn draining(&self) -> Option<Draining> {
        self.judgement().health.draining()
    }

    /// Gives it nothing new. What it has, it finishes.
    pub fn drain(&self, reason: DrainReason, now: Instant) {
        let changed = {
            let mut judgement = self.judgement();
            let before = judgement.health.draining().map(|draining| draining.reason);
            judgement.health.drain(reason, now);
            before != Some(reason)
        };
        if changed {
            tracing::info!(worker = %self.name(), reason = reason.word(), "worker drains");
        }
    }

    /// Takes it back into service.
    pub fn undrain(&self, now: Instant) {
        self.judgement().health.undrain(now);
    }

    /// Requests open there from this process.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Begins a request; `None` while the breaker is open.
    ///
    /// The attempt counts as in flight until it is dropped, so it belongs into whatever lives as long as
    /// the stream does.
    pub fn begin(self: &Arc<Self>, now: Instant) -> Option<Attempt> {
        let permit = self.judgement().breaker.admit(now)?;
        Some(self.attempt(Some(permit)))
    }

    /// Begins a request whatever the breaker says: for a worker chosen in panic.
    pub fn begin_anyway(self: &Arc<Self>, now: Instant) -> Attempt {
        let permit = self.judgement().breaker.admit(now);
        self.attempt(permit)
    }

    fn attempt(self: &Arc<Self>, permit: Option<Permit>) -> Attempt {
        Attempt::new(Arc::clone(self), permit)
    }

    pub(crate) fn signal(&self, signal: Signal, now: Instant) -> bool {
        let (before, after, again) = {
            let mut judgement = self.judgement();
            let before = judgement.health.condition(now);
            let again = judgement.health.signal(signal, now);
            (before, judgement.health.condition(now), again)
        };
        if before.word() != after.word() {
            self.log_change(before, after);
            if matches!(before, Condition::Down(_) | Condition::Starting) {
                self.scrape_now.notify_one();
            }
        }
        again
    }

    pub(crate) fn observed(&self, observation: Observation, asked: Instant, now: Instant) {
        let (before, after) = {
            let mut judgement = self.judgement();
            let before = judgement.health.condition(now);
            judgement.health.observed(&observation, now);
            (before, judgement.health.condition(now))
        };
        if before.word() != after.word() {
            self.log_change(before, after);
        }
        let last = self.sighting.load_full();
        let sighting = Sighting::next(last.as_deref(), observation, asked, now);
        if sighting.rates.as_ref().is_some_and(|rates| rates.restarted) {
            tracing::warn!(worker = %self.name(), "worker restarted: its counters begin anew");
        }
        self.sighting.store(Some(Arc::new(sighting)));
    }

    pub(crate) fn has_no_metrics(&self) {
        self.judgement().health.has_no_metrics();
        self.sighting.store(None);
    }

    fn log_change(&self, before: Condition, after: Condition) {
        let (name, before) = (self.name(), before.word());
        match after {
            Condition::Healthy { .. } | Condition::Starting | Condition::Draining(_) => {
                tracing::info!(worker = %name, before, now = after.word(), "worker's condition changed");
            }
            _ => {
                tracing::warn!(worker = %name, before, now = after.word(), "worker's condition changed");
            }
        }
    }

    fn judgement(&self) -> MutexGuard<'_, Judgement> {
        self.judgement
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{PanicConfig, standings};
    use crate::spec::WorkerUrl;

    #[test]
    fn what_answers_tell_of_a_workers_load_counts_where_its_metrics_are_late() {
        let start = Instant::now();
        let spec = WorkerSpec::new(WorkerUrl::parse("http://10.0.0.1:8000").unwrap());
        let worker = Worker::new(
            WorkerId(0),
            spec,
            HealthConfig::default(),
            BreakerConfig::default(),
            start,
        );
        let full = LoadReport {
            kv_usage: Some(0.9),
            waiting: Some(4),
        };
        worker.reported(full, start);
        assert!(worker.sighting().is_none(), "its size is not known");
        let page = "vllm:kv_cache_usage_perc 0.1\nvllm:num_requests_running 7\nvllm:num_requests_waiting 0\n";
        worker.observed(Observation::from_page(page).unwrap(), start, start);
        let usage = || worker.sighting().unwrap().observation.kv_usage;

        worker.reported(full, start + LATE_METRICS / 2);
        assert_eq!(usage(), Some(0.1), "the page is newer");
        let late = start + LATE_METRICS;
        assert!(worker.wants_load_report(late));
        worker.reported(full, late);
        let seen = worker.sighting().unwrap();
        assert_eq!((usage(), seen.observation.waiting), (Some(0.9), Some(4)));
        assert_eq!((seen.observation.running, seen.at), (Some(0), late));
    }

    #[test]
    fn what_answers_tell_does_not_shorten_the_time_that_counters_are_read_over() {
        let start = Instant::now();
        let worker = worker(start);
        let page = |tokens: u32| {
            let text =
                format!("vllm:num_requests_running 1\nvllm:generation_tokens_total {tokens}\n");
            Observation::from_page(&text).unwrap()
        };
        worker.observed(page(0), start, start);
        let load = LoadReport {
            kv_usage: Some(0.5),
            waiting: Some(0),
        };
        worker.reported(load, start + Duration::from_millis(1900));
        let now = start + Duration::from_secs(2);
        worker.observed(page(200), now, now);
        let rates = worker.sighting().unwrap().rates.clone().unwrap();
        assert_eq!(rates.generation_tokens_per_second, Some(100.0));
    }

    fn worker(now: Instant) -> Worker {
        let spec = WorkerSpec::new(WorkerUrl::parse("http://h:1").unwrap());
        let (health, breaker) = (HealthConfig::default(), BreakerConfig::default());
        let worker = Worker::new(WorkerId(0), spec, health, breaker, now);
        worker.signal(Signal::Alive, now);
        worker
    }

    fn weights(workers: &[&Worker], now: Instant) -> Vec<f64> {
        let candidates: Vec<Candidate> = workers.iter().map(|w| w.candidate(now)).collect();
        let standings = standings(&candidates, PanicConfig::default());
        standings.iter().map(|standing| standing.weight).collect()
    }

    #[test]
    fn what_others_say_takes_a_worker_away_only_while_there_are_others() {
        let start = Instant::now();
        let now = start + Duration::from_secs(60);
        let (one, two) = (worker(start), worker(start));
        let said = Hearsay {
            since: now,
            until: now + Duration::from_secs(2),
        };
        one.advise(Some(said), now);
        assert_eq!(weights(&[&one, &two], now), [0.0, 1.0]);
        assert!(weights(&[&one], now)[0] > 0.0);
        two.advise(Some(said), now);
        assert!(
            weights(&[&one, &two], now)
                .iter()
                .all(|weight| *weight > 0.0)
        );
        // Seen well since, or not renewed: it does not count.
        one.signal(Signal::Alive, now + Duration::from_millis(1));
        assert!(!one.is_doubted(now + Duration::from_millis(1)));
        assert!(!two.is_doubted(said.until));
        two.advise(None, now);
        assert!(!two.is_doubted(now));
    }
}
