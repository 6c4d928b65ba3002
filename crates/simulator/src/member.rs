//! A worker as the fleet has it: the simulated machine, and what the router can know of it.

use std::collections::HashMap;
use std::time::Duration;

use routing::admission::{Demand, Ticket, WorkerLedger};
use routing::calibration::Calibration;
use routing::{WorkerId, WorkerView};

use crate::spec::WorkerSpec;
use crate::worker::{Counters, Gauges, SimWorker};

/// How much a scrape's new speeds count against the old: a few seconds decide.
const NEW_SPEED_SHARE: f64 = 0.2;

pub(crate) struct Member {
    pub(crate) id: WorkerId,
    pub(crate) worker: SimWorker,
    pub(crate) stepping: bool,
    ledger: WorkerLedger,
    calibration: Calibration,
    open: HashMap<usize, Open>,
    scraped_at: Duration,
    gauges: Gauges,
    counters: Counters,
    prefill_rate: f64,
    inter_token: Duration,
}

struct Open {
    ticket: Ticket,
    predicted_cached_tokens: u64,
}

impl Member {
    pub(crate) fn new(id: WorkerId, spec: WorkerSpec) -> Self {
        Self {
            id,
            worker: SimWorker::new(spec),
            stepping: false,
            ledger: WorkerLedger::default(),
            calibration: Calibration::default(),
            open: HashMap::new(),
            scraped_at: Duration::ZERO,
            gauges: Gauges::default(),
            counters: Counters::default(),
            prefill_rate: spec.prefill_tokens_per_second,
            inter_token: spec.step_base,
        }
    }

    /// What a policy is told about it now.
    pub(crate) fn view(&self, now: Duration) -> WorkerView {
        let spec = self.worker.spec();
        WorkerView {
            kv_usage: self.gauges.kv_usage,
            running: self.gauges.running,
            waiting: self.gauges.waiting,
            metrics_age: now.saturating_sub(self.scraped_at),
            ledger: self.ledger.view(now, self.prefill_rate),
            prefill_tokens_per_second: self.prefill_rate,
            inter_token: self.inter_token,
            step_tokens: spec.step_tokens,
            hit_trust: self.calibration.trust(),
            ..WorkerView::idle(self.id, spec.kv_tokens)
        }
    }

    pub(crate) fn sent(
        &mut self,
        request: usize,
        demand: Demand,
        predicted_cached_tokens: u64,
        now: Duration,
    ) {
        let ticket = self.ledger.reserve(demand, now);
        self.open.insert(
            request,
            Open {
                ticket,
                predicted_cached_tokens,
            },
        );
    }

    pub(crate) fn first_token(&mut self, request: usize, now: Duration) {
        if let Some(open) = self.open.get(&request) {
            self.ledger.first_token(open.ticket, now);
        }
    }

    pub(crate) fn answered(&mut self, request: usize, cached_tokens: u64, now: Duration) {
        if let Some(open) = self.open.get(&request) {
            let block_tokens = self.worker.spec().block_tokens;
            self.calibration
                .observe(open.predicted_cached_tokens, cached_tokens, block_tokens);
        }
        self.settle(request, now);
    }

    pub(crate) fn settle(&mut self, request: usize, now: Duration) {
        if let Some(open) = self.open.remove(&request) {
            self.ledger.settle(open.ticket, now);
        }
    }

    pub(crate) fn scrape(&mut self, now: Duration) {
        let counters = self.worker.counters();
        let computed = (counters.prefill_tokens - self.counters.prefill_tokens) as f64;
        let computing = counters
            .prefill_time
            .saturating_sub(self.counters.prefill_time)
            .as_secs_f64();
        if computing > 0.0 {
            self.prefill_rate += NEW_SPEED_SHARE * (computed / computing - self.prefill_rate);
        }
        let gaps = counters.inter_token_count - self.counters.inter_token_count;
        if gaps > 0 {
            let waited = counters
                .inter_token_time
                .saturating_sub(self.counters.inter_token_time);
            let gap = waited.div_f64(gaps as f64);
            self.inter_token =
                self.inter_token.mul_f64(1.0 - NEW_SPEED_SHARE) + gap.mul_f64(NEW_SPEED_SHARE);
        }
        self.counters = counters;
        self.gauges = self.worker.gauges();
        self.scraped_at = now;
        self.ledger.scraped(now);
    }

    pub(crate) fn exact_share(&self) -> f64 {
        self.calibration.exact_share()
    }

    pub(crate) fn has_drained(&self) -> bool {
        self.open.is_empty() && self.ledger.is_empty() && self.worker.is_idle()
    }
}
