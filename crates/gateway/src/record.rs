//! What became of a request: one log line and a few counts, whichever way it ended.
//!
//! A record is made when a request arrives and travels with it. Dropped before an outcome was noted, it
//! tells that the client left: there is no other way for a request to vanish.

use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::{ApiError, Usage};

use crate::gateway::Gateway;
use crate::metrics::Outcome;
use crate::tenants::Tenant;

/// The routes that generate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    Chat,
    Completions,
}

impl Route {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Route::Chat => "/v1/chat/completions",
            Route::Completions => "/v1/completions",
        }
    }
}

/// nginx's status for a client that left before it was answered.
const CLIENT_LEFT: u16 = 499;

pub(crate) struct Record {
    gateway: Arc<Gateway>,
    route: Route,
    id: Arc<str>,
    tenant: Option<Arc<Tenant>>,
    arrived: Instant,
    first_token: Option<Duration>,
    pub(crate) usage: Usage,
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
            arrived: Instant::now(),
            first_token: None,
            usage: Usage::default(),
            status: CLIENT_LEFT,
            problem: None,
        }
    }

    /// Notes whose request it is.
    pub(crate) fn identified(&mut self, tenant: &Arc<Tenant>) {
        self.tenant = Some(Arc::clone(tenant));
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

    /// Notes the prompts, which are now in the worker's hands.
    pub(crate) fn dispatched(&mut self, prompt_tokens: usize) {
        self.usage.prompt_tokens = prompt_tokens;
        self.gateway.traffic.prompted(prompt_tokens);
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
        let took = self.arrived.elapsed();
        self.gateway.metrics.finished(
            Outcome {
                route: self.route.path(),
                status: u32::from(self.status),
            },
            took,
        );
        tracing::info!(
            target: "forespeak::request",
            id = &*self.id,
            tenant = self.tenant.as_deref().map(|tenant| &*tenant.name),
            route = self.route.path(),
            status = self.status,
            prompt_tokens = self.usage.prompt_tokens,
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
