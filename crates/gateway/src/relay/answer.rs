//! An answer on its way from a worker to the client.
//!
//! The client's connection pulls: a piece is read from the worker when the client has taken the one before,
//! so that a slow client makes a slow stream and not a long queue.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body as AxumBody;
use axum::response::Response;
use bytes::Bytes;
use fleet::WorkerId;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use hyper::body::{Body, Frame};
use protocol::{ApiError, ErrorKind, headers, sse};
use tokio::time::Instant;

use super::begin::{Begun, Leg, Source, find_worker, out_of_time};
use super::resume::text_to_keep;
use super::tap::{Failure, Report, Tap};
use super::timing::Lost;
use crate::gateway::Gateway;
use crate::placement::{Outcome, Reported};
use crate::record::Record;
use crate::route::Route;
use crate::stages::{Prepared, SoFar};

/// How often the fleet is told that an answer goes on.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// How often one answer may be taken over. Whoever loses three workers has a prompt that kills them.
const MAX_CONTINUATIONS: u32 = 2;

/// What goes to the client of a worker's headers. A list of what may pass, not of what may not: names of
/// machines and hop-by-hop headers stay behind.
const PASSED_HEADERS: [HeaderName; 4] = [
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CACHE_CONTROL,
    header::RETRY_AFTER,
];

/// Turns an answer that has begun into one for the client.
pub(crate) fn answer(gateway: &Arc<Gateway>, begun: Begun, mut record: Record) -> Response {
    let Begun { request, head, leg } = begun;
    let is_stream = is_event_stream(&head.headers);
    record.placed(leg.placement.worker(), leg.placement.predicted_cached());
    let mut response = Response::new(AxumBody::empty());
    *response.status_mut() = head.status;
    for name in PASSED_HEADERS {
        if let Some(value) = head.headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    if request.tenant.trusted
        && let Ok(decision) = HeaderValue::from_str(&leg.placement.chosen().header_value())
    {
        response.headers_mut().insert(headers::DECISION, decision);
    }
    let tap = if is_stream {
        let keep = text_to_keep(request.route, &request.survey);
        Tap::of_stream(request.hides_usage(), keep)
    } else {
        // Its length is known, and nothing is added or taken away.
        if let Some(length) = head.headers.get(header::CONTENT_LENGTH) {
            let length = length.clone();
            response
                .headers_mut()
                .insert(header::CONTENT_LENGTH, length);
        }
        Tap::of_whole()
    };
    let mut relayed = Relayed {
        gateway: Arc::clone(gateway),
        request,
        status: head.status,
        is_stream,
        tap,
        record: Some(record),
        told: Instant::now(),
        tried: Vec::new(),
        continuations: 0,
        said_before: 0,
        state: State::Flowing(Box::new(leg)),
    };
    relayed.finish_if_said();
    *response.body_mut() = AxumBody::new(relayed);
    response
}

fn is_event_stream(head: &HeaderMap) -> bool {
    let kind = head.get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| {
        kind.as_bytes()
            .starts_with(headers::EVENT_STREAM.as_bytes())
    })
}

type Continuing = Pin<Box<dyn Future<Output = Result<Leg, ApiError>> + Send>>;

enum State {
    /// A worker speaks.
    Flowing(Box<Leg>),
    /// One was lost, and another is looked for.
    Continuing(Continuing),
    /// All was said and the books are closed. Heard to its end, the connection can be kept.
    Parting(Box<Source>),
    /// Nothing more will come.
    Over,
}

/// The body of an answer. Dropped before its end, the client has left: the place at the worker and the
/// connection to it go with it, and the record tells of it.
struct Relayed {
    gateway: Arc<Gateway>,
    request: Arc<Prepared>,
    status: StatusCode,
    is_stream: bool,
    tap: Tap,
    record: Option<Record>,
    told: Instant,
    /// Workers that were lost.
    tried: Vec<WorkerId>,
    continuations: u32,
    /// Tokens that the workers before this one said.
    said_before: u64,
    state: State,
}

impl Body for Relayed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        loop {
            let said = match &mut this.state {
                State::Over => return Poll::Ready(None),
                State::Parting(source) => match poll_source(source, cx) {
                    Poll::Pending => return Poll::Pending,
                    // Whoever goes on behind its own good-bye is hung up on.
                    Poll::Ready(Heard::End | Heard::Piece(_) | Heard::Lost(_)) => {
                        this.state = State::Over;
                        return Poll::Ready(None);
                    }
                },
                State::Flowing(leg) => match poll_source(&mut leg.source, cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Heard::Piece(piece)) => this.heard(piece),
                    Poll::Ready(Heard::End) => this.ended(),
                    Poll::Ready(Heard::Lost(lost)) => match this.lost(lost) {
                        Ok(said) => said,
                        Err(broken) => return Poll::Ready(Some(Err(broken))),
                    },
                },
                State::Continuing(search) => match search.as_mut().poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(leg)) => this.continued(leg),
                    Poll::Ready(Err(error)) => this.give_up(&error),
                },
            };
            if !said.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(said))));
            }
        }
    }
}

enum Heard {
    Piece(Bytes),
    End,
    Lost(Lost),
}

fn poll_source(source: &mut Source, cx: &mut Context<'_>) -> Poll<Heard> {
    if let Some(first) = source.first.take() {
        return Poll::Ready(Heard::Piece(first));
    }
    match source.flow.poll_piece(cx) {
        Poll::Ready(Some(Ok(piece))) => {
            source.watch.heard(Instant::now());
            Poll::Ready(Heard::Piece(piece))
        }
        Poll::Ready(Some(Err(broken))) => Poll::Ready(Heard::Lost(Lost::Fault(broken))),
        Poll::Ready(None) => Poll::Ready(Heard::End),
        Poll::Pending => source.watch.poll(cx).map(Heard::Lost),
    }
}

impl Relayed {
    /// A piece came; gives what of it goes to the client.
    fn heard(&mut self, piece: Bytes) -> Bytes {
        let shown = self.tap.pass(piece);
        if let Some(record) = &mut self.record {
            record.heard();
        }
        let now = Instant::now();
        if now.saturating_duration_since(self.told) >= TELL_EVERY
            && let State::Flowing(leg) = &mut self.state
        {
            self.told = now;
            leg.placement.progressed(self.tap.tokens());
        }
        self.finish_if_said();
        shown
    }

    /// Closes the books with the last word of an answer, before the client hears it. Many leave with it and
    /// wait for no end of the message; none of them is to count as gone half-way, or to find its place taken.
    fn finish_if_said(&mut self) {
        let State::Flowing(leg) = &mut self.state else {
            return;
        };
        let source = &mut leg.source;
        if self.is_stream {
            if self.tap.is_done() {
                self.finish();
            }
        } else if source.first.is_none() && source.flow.is_over() {
            source.flow.give_back();
            // Nothing was held back of an answer in one piece.
            let _nothing = self.tap.end();
            self.finish();
        }
    }

    /// The worker has said all it had to say.
    fn ended(&mut self) -> Bytes {
        let last = self.tap.end();
        let is_cut_off = self.is_stream
            && self.status.is_success()
            && !(self.has_said_all() || self.tap.failure().is_some());
        if is_cut_off && self.knows_endings() {
            let why = "the stream ended before its answer did";
            let broken = super::wire::Broken::new(fleet::Fault::Reset, why);
            return self.lost(Lost::Fault(broken)).unwrap_or_default();
        }
        self.finish();
        last
    }

    /// Whether nothing of the answer itself is missing.
    fn has_said_all(&self) -> bool {
        let survey = &self.request.survey;
        self.tap.is_done() || self.tap.finished() >= survey.n.max(1) * survey.prompts
    }

    /// Whether streams of this route say that they are finished.
    fn knows_endings(&self) -> bool {
        matches!(self.request.route, Route::Chat | Route::Completions)
    }

    fn finish(&mut self) {
        let mut report = self.tap.report();
        if let State::Flowing(leg) = std::mem::replace(&mut self.state, State::Over) {
            let outcome = match self.tap.failure() {
                // It told so itself, in the middle of its answer.
                Some(Failure::OfWorker) => Outcome::WorkerFault(fleet::Fault::ServerError),
                Some(Failure::OfClient) => Outcome::ClientFault(StatusCode::BAD_REQUEST),
                None if self.status.is_success() => Outcome::Finished(reported(report)),
                None => Outcome::ClientFault(self.status),
            };
            let Leg { source, placement } = *leg;
            if self.status.is_success() {
                // A worker that does not count is counted for.
                let counted = placement.chosen().prompt_tokens;
                report.prompt_tokens.get_or_insert(counted);
            }
            placement.settle(outcome);
            if !source.flow.is_over() {
                self.state = State::Parting(Box::new(source));
            }
        }
        if let Some(mut record) = self.record.take() {
            record.relayed(self.status.as_u16(), report, self.tap.tokens());
        }
    }

    /// The worker is lost in the middle of its answer.
    fn lost(&mut self, lost: Lost) -> io::Result<Bytes> {
        let State::Flowing(leg) = std::mem::replace(&mut self.state, State::Over) else {
            return Ok(Bytes::new());
        };
        let Leg { placement, .. } = *leg;
        let worker = Arc::clone(placement.worker());
        let error = match &lost {
            Lost::Fault(broken) => {
                tracing::warn!(
                    id = &*self.request.id,
                    worker = worker.name(),
                    fault = ?broken.fault,
                    why = broken.why,
                    pieces = self.tap.tokens(),
                    "a worker broke off its answer"
                );
                placement.settle(Outcome::WorkerFault(broken.fault));
                ApiError::new(
                    ErrorKind::BadGateway,
                    "the model's worker broke off its answer; what came so far is not complete",
                )
            }
            Lost::Deadline => {
                placement.settle(Outcome::Deadline);
                out_of_time()
            }
        };
        self.gateway.relay.metrics.streams_lost.inc();
        if !self.is_stream {
            self.refuse(&error);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, error));
        }
        if self.has_said_all() {
            // Only the good-bye is missing.
            let last = if self.tap.is_done() { &[] } else { sse::DONE };
            self.finish();
            return Ok(Bytes::from_static(last));
        }
        self.tried.push(worker.id());
        if matches!(lost, Lost::Fault(_)) && self.may_continue() {
            self.state = State::Continuing(self.look_for_another());
            return Ok(Bytes::new());
        }
        Ok(self.give_up(&error))
    }

    fn may_continue(&self) -> bool {
        self.tap.said().is_some()
            && self.tap.failure().is_none()
            && self.continuations < MAX_CONTINUATIONS
            && self.request.model.retries.withdraw()
    }

    fn look_for_another(&mut self) -> Continuing {
        self.continuations += 1;
        let text = self.tap.said().unwrap_or_default().to_vec();
        // A piece may be several tokens, where a worker drafts; only a tokenizer can tell.
        let counted = self.request.model.pool.count_tokens_of_json(&text);
        let tokens = counted.unwrap_or_else(|| self.tap.tokens());
        self.said_before = tokens;
        let gateway = Arc::clone(&self.gateway);
        let request = Arc::clone(&self.request);
        let avoid = self.tried.clone();
        Box::pin(async move {
            let so_far = SoFar {
                text: &text,
                tokens,
            };
            // With nothing said yet it is the same request once more.
            let so_far = (!text.is_empty()).then_some(&so_far);
            let (head, leg) = find_worker(&gateway.relay, &request, so_far, avoid).await?;
            if head.status.is_success() && is_event_stream(&head.headers) {
                return Ok(leg);
            }
            Err(ApiError::new(
                ErrorKind::BadGateway,
                "the model's worker broke off its answer and no other could continue it",
            ))
        })
    }

    fn continued(&mut self, leg: Leg) -> Bytes {
        self.gateway.relay.metrics.streams_continued.inc();
        tracing::info!(
            id = &*self.request.id,
            worker = leg.placement.worker().name(),
            "another worker continues the answer"
        );
        self.tap.resume(self.said_before);
        self.state = State::Flowing(Box::new(leg));
        Bytes::new()
    }

    /// Ends a stream with an event that says why.
    fn give_up(&mut self, error: &ApiError) -> Bytes {
        self.state = State::Over;
        self.refuse(error);
        let mut event = Vec::new();
        sse::write_event(&mut event, |out| out.extend_from_slice(&error.to_json()));
        event.into()
    }

    fn refuse(&mut self, error: &ApiError) {
        if let Some(mut record) = self.record.take() {
            record.relayed(self.status.as_u16(), self.tap.report(), self.tap.tokens());
            record.refused(error);
        }
    }
}

impl Drop for Relayed {
    fn drop(&mut self) {
        // The client has left; what it was given counts.
        if let (Some(record), State::Flowing(leg)) = (&mut self.record, &self.state) {
            let prompt_tokens = leg.placement.chosen().prompt_tokens;
            record.broken_off(prompt_tokens, self.tap.tokens());
        }
    }
}

fn reported(report: Report) -> Reported {
    Reported {
        prompt_tokens: report.prompt_tokens,
        completion_tokens: report.completion_tokens,
        cached_tokens: report.cached_tokens,
    }
}
