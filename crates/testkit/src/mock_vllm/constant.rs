//! A worker that costs next to nothing: constant answers, written as fast as they can be, for measuring what stands
//! between it and a client.
//!
//! A streamed answer comes in so many chunks, each in a packet of its own with a pause before it, because nothing
//! would be learnt about the cost of a chunk if they all came at once. The pages that routers ask a worker for are there,
//! with a load of zero.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, Sleep, sleep_until};

use super::{Books, MockConfig, metrics, server};

/// The cache that it claims to have: nobody is to be refused for want of room.
const KV_TOKENS: u64 = 1 << 32;

/// How a constant worker answers.
#[derive(Clone, Debug)]
pub struct ConstantConfig {
    /// The name of its model.
    pub model: String,
    /// Chunks of a streamed answer.
    pub chunks: usize,
    /// Before each chunk.
    pub pause: Duration,
    /// 0 takes a free one.
    pub port: u16,
}

impl Default for ConstantConfig {
    fn default() -> Self {
        Self {
            model: "mock".to_owned(),
            chunks: 32,
            pause: Duration::from_millis(2),
            port: 0,
        }
    }
}

/// Everything it ever says.
struct Answers {
    whole: Bytes,
    chunks: Arc<[Bytes]>,
    pause: Duration,
    models: Bytes,
    metrics: Bytes,
}

impl Answers {
    fn new(config: &ConstantConfig) -> Self {
        let model = &config.model;
        let usage = format!(
            r#""usage":{{"prompt_tokens":1000,"completion_tokens":{n},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":0}}}}"#,
            1000 + config.chunks,
            n = config.chunks
        );
        let head = format!(
            r#"data: {{"id":"chatcmpl-constant","object":"chat.completion.chunk","created":1,"model":"{model}","#
        );
        let chunk = format!(
            "{head}\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" word\"}},\"logprobs\":null,\"finish_reason\":null}}]}}\n\n"
        );
        let last = format!(
            "{head}\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" end\"}},\"logprobs\":null,\"finish_reason\":\"stop\"}}]}}\n\n{head}\"choices\":[],{usage}}}\n\ndata: [DONE]\n\n"
        );
        let mut chunks = vec![Bytes::from(chunk); config.chunks.saturating_sub(1)];
        chunks.push(Bytes::from(last));
        let mut mock = MockConfig {
            model: model.clone(),
            ..MockConfig::default()
        };
        mock.worker.kv_tokens = KV_TOKENS;
        Self {
            whole: Bytes::from(format!(
                r#"{{"id":"chatcmpl-constant","object":"chat.completion","created":1,"model":"{model}","choices":[{{"index":0,"message":{{"role":"assistant","content":"{}"}},"logprobs":null,"finish_reason":"stop"}}],{usage}}}"#,
                " word".repeat(config.chunks)
            )),
            chunks: chunks.into(),
            pause: config.pause,
            models: Bytes::from(format!(
                r#"{{"object":"list","data":[{{"id":"{model}","object":"model","created":0,"owned_by":"vllm","max_model_len":1000000}}]}}"#
            )),
            metrics: Bytes::from(metrics::page(&mock, &Books::default())),
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Chunks>, hyper::Error> {
        let path = match request.uri().path() {
            "/v1/chat/completions" | "/v1/completions" | "/generate" => None,
            path => Some(path.to_owned()),
        };
        let streams = drain(request.into_body()).await?;
        let json = HeaderValue::from_static("application/json");
        let (kind, body) = match path.as_deref() {
            None if streams => (
                HeaderValue::from_static("text/event-stream; charset=utf-8"),
                Chunks::stream(Arc::clone(&self.chunks), self.pause),
            ),
            None => (json, Chunks::one(self.whole.clone())),
            Some("/v1/models") => (json, Chunks::one(self.models.clone())),
            Some("/metrics") => (
                HeaderValue::from_static("text/plain; version=0.0.4"),
                Chunks::one(self.metrics.clone()),
            ),
            Some("/version") => (
                json,
                Chunks::one(Bytes::from_static(br#"{"version":"0.32.0"}"#)),
            ),
            Some("/v1/loads") => (json, Chunks::one(Bytes::from_static(br#"{"loads":[]}"#))),
            Some(_) => (json, Chunks::one(Bytes::from_static(b"{}"))),
        };
        let mut response = Response::new(body);
        response.headers_mut().insert(CONTENT_TYPE, kind);
        Ok(response)
    }
}

/// Reads a body to its end; says whether it asks for a stream. That stands within the last bytes or the first ones of
/// what benches send.
async fn drain(mut body: Incoming) -> Result<bool, hyper::Error> {
    const ASKS: [&[u8]; 2] = [br#""stream":true"#, br#""stream": true"#];
    const LOOKED_AT: usize = 512;
    let asks = |bytes: &[u8]| {
        ASKS.iter()
            .any(|ask| bytes.windows(ask.len()).any(|window| window == *ask))
    };
    let mut streams = false;
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame?.data_ref() {
            let head = &data[..data.len().min(LOOKED_AT)];
            let tail = &data[data.len().saturating_sub(LOOKED_AT)..];
            streams = streams || asks(head) || asks(tail);
        }
    }
    Ok(streams)
}

/// A body of constant pieces with pauses in between.
struct Chunks {
    one: Option<Bytes>,
    pieces: Arc<[Bytes]>,
    next: usize,
    pause: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Chunks {
    fn one(bytes: Bytes) -> Self {
        Self {
            one: Some(bytes),
            pieces: Arc::from([]),
            next: 0,
            pause: Duration::ZERO,
            sleep: None,
        }
    }

    fn stream(pieces: Arc<[Bytes]>, pause: Duration) -> Self {
        Self {
            one: None,
            pieces,
            next: 0,
            pause,
            sleep: Some(Box::pin(sleep_until(Instant::now() + pause))),
        }
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        if let Some(bytes) = this.one.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        let Some(piece) = this.pieces.get(this.next) else {
            return Poll::Ready(None);
        };
        if let Some(sleep) = &mut this.sleep {
            if sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            let next = sleep.deadline() + this.pause;
            sleep.as_mut().reset(next);
        }
        this.next += 1;
        Poll::Ready(Some(Ok(Frame::data(piece.clone()))))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.one {
            Some(bytes) => SizeHint::with_exact(bytes.len() as u64),
            None => SizeHint::default(),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.one.is_none() && self.next == self.pieces.len()
    }
}

/// A constant worker that runs. Dropping it ends it.
pub struct ConstantWorker {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl ConstantWorker {
    /// Binds it on the loopback interface and serves.
    pub fn start(config: &ConstantConfig) -> io::Result<Self> {
        let listener = server::listen(config.port)?;
        let address = listener.local_addr()?;
        let answers = Arc::new(Answers::new(config));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let Ok((stream, _)) = accepted else { continue };
                        let _ = stream.set_nodelay(true);
                        let answers = Arc::clone(&answers);
                        connections.spawn(async move {
                            let service = service_fn(move |request| {
                                let answers = Arc::clone(&answers);
                                async move { answers.answer(request).await }
                            });
                            // Some routers ask in HTTP/2 without an upgrade.
                            let _ = auto::Builder::new(TokioExecutor::new())
                                .serve_connection(TokioIo::new(stream), service)
                                .await;
                        });
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self { address, task })
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for ConstantWorker {
    fn drop(&mut self) {
        self.task.abort();
    }
}
