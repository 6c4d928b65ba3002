//! One attempt at one worker, up to the first piece of its answer.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use fleet::observe::orca;
use fleet::{Fault, Worker};
use http::{HeaderValue, Method, Request, Response, header};
use hyper::body::{Body, Incoming};
use protocol::headers;
use protocol::survey::Pieces;

use super::idle::IdleWires;
use super::outgoing::Outgoing;
use super::timing::{Lost, RelayTimeouts, Watch};
use super::wire::{Broken, NotOpened, Wire};

/// What is asked of a worker.
pub(super) struct Order<'a> {
    /// Which of the worker's ranks is meant, if one is; the rest is the same for every attempt.
    pub(super) rank: Option<u16>,
    pub(super) path: &'a str,
    pub(super) body: &'a Pieces,
    pub(super) id: &'a HeaderValue,
    /// Headers of distributed tracing, as the client sent them.
    pub(super) trace: &'a [(header::HeaderName, HeaderValue)],
}

/// An answer that has begun.
pub(super) struct Reply {
    pub(super) head: http::response::Parts,
    /// `None` if there is nothing in it.
    pub(super) first: Option<Bytes>,
    pub(super) flow: Flow,
}

/// The rest of an answer. Dropping it closes the connection; read to its end it is kept for the next.
pub(super) struct Flow {
    wire: Option<Wire>,
    answer: Incoming,
    worker: Arc<Worker>,
    idle: Arc<IdleWires>,
}

impl Flow {
    pub(super) fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Broken>>> {
        let Some(wire) = &mut self.wire else {
            return Poll::Ready(None);
        };
        let piece = wire.poll_piece(&mut self.answer, cx);
        if matches!(piece, Poll::Ready(None)) {
            self.give_back();
        }
        piece
    }

    /// Whether there is nothing more to come.
    pub(super) fn is_over(&self) -> bool {
        self.wire.is_none() || self.answer.is_end_stream()
    }

    /// Keeps the connection for the next request, where nothing more is to come.
    pub(super) fn give_back(&mut self) {
        if let Some(wire) = self.wire.take() {
            self.idle.put(self.worker.spec().url.authority(), wire);
        }
    }
}

/// Why an attempt came to nothing.
#[derive(Debug)]
pub(super) enum Failed {
    /// There was nothing to wait for, or not any longer.
    Lost(Lost),
    /// This process has as many files open as it may: no worker's fault, and no other could be asked.
    NoDescriptors(std::io::Error),
}

impl From<Lost> for Failed {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

impl From<NotOpened> for Failed {
    fn from(not_opened: NotOpened) -> Self {
        match not_opened {
            NotOpened::Broken(broken) => Self::Lost(Lost::Fault(broken)),
            NotOpened::NoDescriptors(error) => Self::NoDescriptors(error),
        }
    }
}

/// Sends the order and waits for the first piece of the answer.
pub(super) async fn attempt(
    idle: &Arc<IdleWires>,
    timeouts: &RelayTimeouts,
    worker: &Arc<Worker>,
    order: &Order<'_>,
    watch: &mut Watch,
) -> Result<Reply, Failed> {
    let address = worker.spec().url.authority();
    if let Some(wire) = idle.take(address) {
        match converse(idle, worker, order, wire, watch).await {
            // It was closed while it lay idle, which says nothing about the worker.
            Err(Lost::Fault(broken)) if broken.fault == Fault::Reset => {}
            other => return Ok(other?),
        }
    }
    let wire = Wire::open(&worker.spec().url, timeouts.connect).await?;
    Ok(converse(idle, worker, order, wire, watch).await?)
}

async fn converse(
    idle: &Arc<IdleWires>,
    worker: &Arc<Worker>,
    order: &Order<'_>,
    mut wire: Wire,
    watch: &mut Watch,
) -> Result<Reply, Lost> {
    let request = request(worker, order).map_err(Lost::Fault)?;
    let response: Response<Incoming> = {
        let mut exchange = pin!(wire.exchange(request));
        poll_fn(|cx| match exchange.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(answer.map_err(Lost::Fault)),
            Poll::Pending => watch.poll(cx).map(Err),
        })
        .await?
    };
    let (head, answer) = response.into_parts();
    let mut flow = Flow {
        wire: Some(wire),
        answer,
        worker: Arc::clone(worker),
        idle: Arc::clone(idle),
    };
    // The head of a stream comes before the worker has computed anything: as long as there is no piece of
    // it, another worker can take over unnoticed.
    let first = poll_fn(|cx| match flow.poll_piece(cx) {
        Poll::Ready(piece) => Poll::Ready(piece.transpose().map_err(Lost::Fault)),
        Poll::Pending => watch.poll(cx).map(Err),
    })
    .await?;
    watch.heard(tokio::time::Instant::now());
    if flow.is_over() {
        flow.give_back();
    }
    Ok(Reply { head, first, flow })
}

fn request(worker: &Worker, order: &Order<'_>) -> Result<Request<Outgoing>, Broken> {
    let spec = worker.spec();
    let path = format!("{}{}", spec.url.prefix(), order.path);
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(header::HOST, spec.url.authority())
        .header(
            header::CONTENT_TYPE,
            HeaderValue::from_static(headers::JSON),
        )
        .header(headers::REQUEST_ID, order.id);
    if let Some(key) = &spec.api_key {
        request = request.header(header::AUTHORIZATION, format!("Bearer {}", key.reveal()));
    }
    if let Some(rank) = order.rank {
        request = request.header(headers::DATA_PARALLEL_RANK, HeaderValue::from(rank));
    }
    if worker.wants_load_report(std::time::Instant::now()) {
        request = request.header(orca::ASK_HEADER, HeaderValue::from_static(orca::ASK_VALUE));
    }
    for (name, value) in order.trace {
        request = request.header(name, value);
    }
    request
        .body(Outgoing::from(order.body.clone()))
        .map_err(|error| Broken::new(Fault::Unreachable, error))
}

#[cfg(test)]
mod tests {
    use fleet::{Fleet, FleetConfig, WorkerSpec, WorkerUrl};

    use super::*;

    #[tokio::test]
    async fn a_rank_is_named_to_its_worker_and_to_no_other() {
        let url = WorkerUrl::parse("http://127.0.0.1:1").unwrap();
        let workers = vec![WorkerSpec::new(url)];
        let config = FleetConfig {
            workers,
            ..FleetConfig::default()
        };
        let (fleet, _updates) = Fleet::start(config).unwrap();
        let fleet = fleet.snapshot();
        for (rank, named) in [(Some(3), Some("3")), (None, None)] {
            let order = Order {
                rank,
                path: "/v1/completions",
                body: &Pieces::from(Bytes::from_static(b"{}")),
                id: &HeaderValue::from_static("id"),
                trace: &[],
            };
            let request = request(&fleet.workers()[0], &order).unwrap();
            let header = request.headers().get("X-data-parallel-rank");
            assert_eq!(header.map(HeaderValue::as_bytes), named.map(str::as_bytes));
        }
    }
}
