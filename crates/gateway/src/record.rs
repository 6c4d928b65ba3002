//! What became of a request: one log line and a few counts, whichever way it ended.
//!
//! A record is made when a request arrives and travels with it. Dropped before an outcome was noted, it
//! tells that the client left: there is no other way for a request to vanish.

use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::{ApiError, DraftUsage, Usage};

use crate::gateway::Gateway;
use crate::metrics::Outcome;
use crate::relay::Report;
use crate::route::Route;
use crate::tenants::{Pass, Tenant};

/// nginx's status for a client that left before it was answered.
const CLIENT_LEFT: u16 = 499;

pub(crate) struct Record {
    gateway: Arc<Gateway>,
    route: Route,
    id: Arc<str>,
    tenant: Option<Arc<Tenant>>,
    /// What the request may take of its tenant's limits.
    pass: Option<Pass>,
    arrived: Instant,
    first_token: Option<Duration>,
    pub(crate) usage: Usage,
    /// Where it was sent, and how much of its prompt should be cached there.
    placed: Option<(Arc<fleet::Worker>, u64)>,
    /// What the response cache did.
    cache: Option<&'static str>,
    status: u16,
    problem: Option<String>,
}

impl Record {
    pub(crate) fn new(gateway: Arc<Gateway>, route: Route, id: Arc<str>) -> Self {
        Self {
            gateway,
            route,
            id,
            tenant: None,
            pass: None,
            arrived: Instant::now(),
            first_token: None,
            usage: Usage::default(),
            placed: None,
            cache: None,
            status: CLIENT_LEFT,
            problem: None,
        }
    }

    /// Notes whose request it is, if its tenant's limits allow one more.
    pub(crate) fn enter(&mut self, tenant: &Arc<Tenant>) -> Result<(), ApiError> {
        self.tenant = Some(Arc::clone(tenant));
        self.pass = Some(tenant.enter(Instant::now())?);
        Ok(())
    }

    /// Sets aside what the request may take of its tenant's tokens. What it took is settled at its end.
    pub(crate) fn reserve(&mut self, tokens: u64) -> Result<(), ApiError> {
        match &mut self.pass {
            Some(pass) => pass.reserve(tokens, Instant::now()),
            None => Ok(()),
        }
    }

    /// Notes a prompt that was read.
    pub(crate) fn read(&mut self, cached_tokens: usize) {
        self.usage.cached_tokens += cached_tokens;
    }

    /// Notes tokens that were generated.
    pub(crate) fn generated(&mut self, tokens: usize) {
        self.first_token
            .get_or_insert_with(|| self.arrived.elapsed());
        self.usage.completion_tokens += tokens;
        self.gateway.traffic.generated(tokens);
    }

    /// Notes that the usage is to tell how speculation did.
    pub(crate) fn tells_drafts(&mut self) {
        self.usage.drafts = Some(DraftUsage::default());
    }

    /// Notes what became of the drafts for an answer.
    pub(crate) fn drafted(&mut self, counts: engine::DraftCounts) {
        if let Some(drafts) = &mut self.usage.drafts {
            drafts.accepted += counts.accepted;
            drafts.rejected += counts.drafted.saturating_sub(counts.accepted);
        }
    }

    /// Notes the prompts, which are now in the worker's hands.
    pub(crate) fn dispatched(&mut self, prompt_tokens: usize) {
        self.usage.prompt_tokens = prompt_tokens;
        self.gateway.traffic.prompted(prompt_tokens);
    }

    /// Notes the worker elsewhere that answers.
    pub(crate) fn placed(&mut self, worker: &Arc<fleet::Worker>, predicted_cached: u64) {
        self.placed = Some((Arc::clone(worker), predicted_cached));
    }

    /// Notes a piece of a relayed answer.
    pub(crate) fn heard(&mut self) {
        self.first_token
            .get_or_insert_with(|| self.arrived.elapsed());
    }

    /// Notes the end of a relayed answer: what it says of itself, or else how many pieces it had.
    pub(crate) fn relayed(&mut self, status: u16, report: Report, pieces: u64) {
        let count = |tokens: u64| usize::try_from(tokens).unwrap_or(usize::MAX);
        self.status = status;
        self.usage = Usage {
            prompt_tokens: count(report.prompt_tokens.unwrap_or(0)),
            completion_tokens: count(report.completion_tokens.unwrap_or(pieces)),
            cached_tokens: count(report.cached_tokens.unwrap_or(0)),
            drafts: None,
        };
        self.gateway.traffic.prompted(self.usage.prompt_tokens);
        self.gateway.traffic.generated(self.usage.completion_tokens);
    }

    /// Notes what the response cache did.
    pub(crate) fn recalled(&mut self, how: &'static str) {
        self.cache = Some(how);
    }

    /// Notes the status of an answer that was made for somebody else.
    pub(crate) fn shared(&mut self, status: u16) {
        self.status = status;
    }

    /// Notes what was relayed to a client that left.
    pub(crate) fn broken_off(&mut self, prompt_tokens: u64, pieces: u64) {
        let report = Report {
            prompt_tokens: Some(prompt_tokens),
            ..Report::default()
        };
        self.relayed(CLIENT_LEFT, report, pieces);
    }

    pub(crate) fn answered(&mut self) {
        self.status = 200;
    }

    pub(crate) fn refused(&mut self, error: &ApiError) {
        self.status = error.kind().status();
        self.problem = Some(error.message().to_owned());
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some(pass) = &mut self.pass {
            let used = self.usage.prompt_tokens + self.usage.completion_tokens;
            pass.settle(used as u64, Instant::now());
        }
        let took = self.arrived.elapsed();
        self.gateway.metrics.finished(
            Outcome {
                route: self.route.path(),
                status: u32::from(self.status),
            },
            self.first_token,
            took,
        );
        if let Some(tenant) = &self.tenant {
            let metrics = &self.gateway.metrics.tenants;
            metrics.finished(&tenant.name, self.status, &self.usage);
        }
        tracing::info!(
            target: "forespeak::request",
            id = &*self.id,
            tenant = self.tenant.as_deref().map(|tenant| &*tenant.name),
            route = self.route.path(),
            status = self.status,
            worker = self.placed.as_ref().map(|(worker, _)| worker.name()),
            predicted_cached = self.placed.as_ref().map(|(_, tokens)| tokens),
            prompt_tokens = self.usage.prompt_tokens,
            cache = self.cache,
            cached_tokens = self.usage.cached_tokens,
            completion_tokens = self.usage.completion_tokens,
            ttft_ms = self.first_token.map(milliseconds),
            duration_ms = milliseconds(took),
            problem = self.problem.as_deref(),
        );
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
