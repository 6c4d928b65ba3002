//! A request finds a worker that answers it.

use std::sync::Arc;

use bytes::Bytes;
use fleet::WorkerId;
use fleet::health::DrainReason;
use fleet::observe::orca::{self, LoadReport};
use http::{StatusCode, header};
use protocol::{ApiError, ErrorKind, headers};
use tokio::time::Instant;

use super::Relay;
use super::exchange::{Failed, Flow, Order, Reply, attempt};
use super::timing::{Lost, Watch, inter_token};
use crate::placement::{Outcome, Placement, refusal_error};
use crate::stages::{Prepared, SoFar};

/// Workers that a request may be sent to, one after the other.
const MAX_ATTEMPTS: usize = 3;

/// A request whose answer has begun.
pub(crate) struct Begun {
    pub(super) request: Arc<Prepared>,
    pub(super) head: http::response::Parts,
    pub(super) leg: Leg,
}

/// One worker's part in an answer. Dropping it ends the work there and gives the place back.
pub(super) struct Leg {
    pub(super) source: Source,
    pub(super) placement: Placement,
}

/// Where the pieces of an answer come from.
pub(super) struct Source {
    pub(super) first: Option<Bytes>,
    pub(super) flow: Flow,
    pub(super) watch: Watch,
}

/// Places a request and sends it, to another worker if need be, until an answer begins.
pub(crate) async fn begin(relay: &Relay, request: Prepared) -> Result<Begun, ApiError> {
    request.model.retries.deposit();
    let request = Arc::new(request);
    let (head, leg) = find_worker(relay, &request, None, Vec::new()).await?;
    Ok(Begun { request, head, leg })
}

/// Like [`begin`], for an answer of which `so_far` has been said by a worker among `avoid`.
pub(super) async fn find_worker(
    relay: &Relay,
    request: &Arc<Prepared>,
    so_far: Option<&SoFar<'_>>,
    mut avoid: Vec<WorkerId>,
) -> Result<(http::response::Parts, Leg), ApiError> {
    let body = request.outgoing(so_far);
    let mut order = Order {
        rank: None,
        path: request.route.path(),
        body: &body,
        id: &request.worker_id,
        trace: &request.trace,
    };
    let timeouts = &request.model.timeouts;
    let mut failure: Option<ApiError> = None;
    loop {
        let placed = request.model.pool.place(&request.ask, &avoid).await;
        let mut placement = match (placed, failure) {
            (Ok(placement), _) => placement,
            // Nobody else is left to ask: what went wrong first is what to tell.
            (Err(_), Some(failure)) => return Err(failure),
            (Err(refusal), None) => return Err(refusal_error(&refusal)),
        };
        let worker = Arc::clone(placement.worker());
        order.rank = placement.rank();
        let total = timeouts.total(request.survey.max_tokens, inter_token(&worker));
        let end = (Instant::now() + total).min(request.ask.deadline);
        let mut watch = Watch::new(&request.model, &worker, request.survey.stream, end);
        let tried = attempt(&relay.idle, timeouts, &worker, &order, &mut watch).await;
        let problem = match tried {
            Ok(reply) => match accept(&mut placement, reply) {
                Ok(Reply { head, first, flow }) => {
                    let source = Source { first, flow, watch };
                    return Ok((head, Leg { source, placement }));
                }
                Err(problem) => problem,
            },
            Err(Failed::Lost(Lost::Fault(broken))) => {
                tracing::warn!(
                    id = &*request.id,
                    worker = worker.name(),
                    fault = ?broken.fault,
                    why = broken.why,
                    "a worker failed a request"
                );
                placement.settle(Outcome::WorkerFault(broken.fault));
                ApiError::new(
                    ErrorKind::BadGateway,
                    "the model's worker failed; try again",
                )
            }
            Err(Failed::Lost(Lost::Deadline)) => {
                placement.settle(Outcome::Deadline);
                return Err(out_of_time());
            }
            Err(Failed::NoDescriptors(error)) => {
                tracing::warn!(
                    id = &*request.id,
                    %error,
                    "no connection to a worker for want of file descriptors: allow this process more of them (ulimit -n)"
                );
                placement.settle(Outcome::NotSent);
                return Err(ApiError::new(
                    ErrorKind::Unavailable,
                    "the gateway has as many connections open as it may; try again later",
                ));
            }
        };
        relay.metrics.failed_attempts.inc();
        avoid.push(worker.id());
        if avoid.len() >= MAX_ATTEMPTS || !request.model.retries.withdraw() {
            relay.metrics.retries_exhausted.inc();
            return Err(problem);
        }
        relay.metrics.retries.inc();
        failure = Some(problem);
    }
}

/// Tells the fleet what the head of an answer says; refuses one that another worker should give.
fn accept(placement: &mut Placement, reply: Reply) -> Result<Reply, ApiError> {
    let status = reply.head.status;
    let has_retry_after = reply.head.headers.contains_key(header::RETRY_AFTER);
    placement.answered(status, has_retry_after);
    let told = reply.head.headers.get(orca::HEADER);
    if let Some(report) = told.and_then(|value| LoadReport::read(value.to_str().ok()?)) {
        let now = std::time::Instant::now();
        placement.worker().reported(report, now);
    }
    if reply.head.headers.contains_key(headers::DRAINING) {
        let now = std::time::Instant::now();
        placement.worker().drain(DrainReason::Leaving, now);
    }
    if !status.is_server_error() || status == StatusCode::NOT_IMPLEMENTED {
        placement.started();
        return Ok(reply);
    }
    Err(if status == StatusCode::SERVICE_UNAVAILABLE {
        ApiError::new(
            ErrorKind::Unavailable,
            "the model's worker is busy; try again",
        )
    } else {
        ApiError::new(
            ErrorKind::BadGateway,
            format!("the model's worker failed with status {}", status.as_u16()),
        )
    })
}

/// What a request is told whose time is over.
pub(super) fn out_of_time() -> ApiError {
    ApiError::new(
        ErrorKind::GatewayTimeout,
        "the answer took longer than the request allows; ask for fewer tokens",
    )
}
