//! Which route does what.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use protocol::headers;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::body::{Cut, MockBody};
use super::books::SharedBooks;
use super::driver::Order;
use super::faults::Script;
use super::generate::{answer_with, refusal};
use super::request::Kind;
use super::{Faults, MetricsFault, MockConfig, Seen, metrics};

/// Requests that are remembered.
const MAX_SEEN: usize = 256;

/// The version that the mock claims to be.
const VERSION: &str = "0.32.0";

/// Asks for the load in a header of the answer (ORCA), and the header with it.
const LOAD_FORMAT: &str = "endpoint-load-metrics-format";
const LOAD: HeaderName = HeaderName::from_static("endpoint-load-metrics");

/// The last requests, as they came.
#[derive(Clone, Default)]
pub(super) struct SeenLog(Arc<Mutex<VecDeque<Seen>>>);

impl SeenLog {
    pub(super) fn read(&self) -> Vec<Seen> {
        self.lock().iter().cloned().collect()
    }

    fn add(&self, seen: Seen) {
        let mut log = self.lock();
        log.push_back(seen);
        if log.len() > MAX_SEEN {
            log.pop_front();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What every connection needs.
pub(super) struct Routes {
    pub(super) config: MockConfig,
    pub(super) jobs: mpsc::UnboundedSender<Order>,
    pub(super) faults: Arc<watch::Sender<Faults>>,
    pub(super) script: Script,
    pub(super) books: SharedBooks,
    pub(super) seen: SeenLog,
}

impl Routes {
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<MockBody>, Cut> {
        let faults = *self.faults.borrow();
        if faults.deaf {
            return std::future::pending().await;
        }
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
        let path = head.uri.path();
        let mut response = match (&head.method, path) {
            (&Method::GET, "/health" | "/ping" | "/server_info" | "/get_server_info") => {
                answer_with("application/json", MockBody::text("{}"))
            }
            (&Method::GET, "/version") => json_answer(&json!({"version": VERSION})),
            (&Method::GET, "/v1/models") => json_answer(&self.models()),
            (&Method::GET, "/v1/loads" | "/get_load") => json_answer(&json!({"loads": []})),
            (&Method::GET, "/metrics") => return self.metrics(faults.metrics).await,
            (&Method::GET, "/mock/books") => json_answer(&json!(self.books.read())),
            (&Method::POST, "/tokenize") => self.tokenize(&body),
            (&Method::POST, "/v1/chat/completions") => {
                self.see(path, &head.headers, &body);
                self.generate(Kind::Chat, &body).await?
            }
            (&Method::POST, "/v1/completions") => {
                self.see(path, &head.headers, &body);
                self.generate(Kind::Completion, &body).await?
            }
            (&Method::POST, _) if path.starts_with("/v1/") => {
                self.see(path, &head.headers, &body);
                json_answer(&json!({"object": "mock", "path": path, "bytes": body.len()}))
            }
            _ => refusal((404, "Not Found".to_owned())),
        };
        if faults.draining {
            response
                .headers_mut()
                .insert(headers::DRAINING, HeaderValue::from_static("1"));
        }
        if head.headers.contains_key(LOAD_FORMAT) {
            response.headers_mut().insert(LOAD, self.load());
        }
        Ok(response)
    }

    fn see(&self, path: &str, headers: &http::HeaderMap, body: &Bytes) {
        self.seen.add(Seen {
            path: path.to_owned(),
            headers: headers.clone(),
            body: body.clone(),
        });
    }

    fn models(&self) -> Value {
        json!({"object": "list", "data": [{
            "id": self.config.model, "object": "model", "created": 0, "owned_by": "vllm",
            "root": self.config.model, "parent": null, "max_model_len": self.config.max_model_len,
        }]})
    }

    fn tokenize(&self, body: &[u8]) -> Response<MockBody> {
        let Ok(asked) = serde_json::from_slice::<Value>(body) else {
            return refusal((400, "not JSON".to_owned()));
        };
        let vocabulary = &self.config.vocabulary;
        let tokens = match (asked["messages"].as_array(), asked["prompt"].as_str()) {
            (Some(messages), _) => {
                let continues = asked["continue_final_message"].as_bool().unwrap_or(false);
                match vocabulary.render(messages, continues) {
                    Ok(text) => vocabulary.encode_rendered(&text),
                    Err(reason) => return refusal((400, reason)),
                }
            }
            (None, Some(text)) => vocabulary.encode(text),
            (None, None) => return refusal((400, "there is no prompt".to_owned())),
        };
        json_answer(&json!({
            "count": tokens.len(), "max_model_len": self.config.max_model_len, "tokens": tokens,
            "token_strs": null,
        }))
    }

    async fn metrics(&self, fault: MetricsFault) -> Result<Response<MockBody>, Cut> {
        const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
        let body = match fault {
            MetricsFault::None => MockBody::text(metrics::page(&self.config, &self.books.read())),
            MetricsFault::Garbage => MockBody::text(&b"\xff\xfe{vllm:\0 NaN NaN}\n\x80 = 3"[..]),
            MetricsFault::Huge => MockBody::Endless(Bytes::from("vllm:nothing 0\n".repeat(4096))),
            MetricsFault::Hang => return std::future::pending().await,
            MetricsFault::Failing => return Ok(refusal((500, "told to fail".to_owned()))),
        };
        Ok(answer_with(TEXT, body))
    }

    fn load(&self) -> HeaderValue {
        let books = self.books.read();
        let load = json!({"named_metrics": {
            "num_requests_waiting": f64::from(books.waiting),
            "kv_cache_usage_perc": books.kv_usage,
        }});
        HeaderValue::try_from(format!("JSON {load}")).unwrap_or(HeaderValue::from_static("JSON {}"))
    }
}

fn json_answer(value: &Value) -> Response<MockBody> {
    answer_with("application/json", MockBody::text(value.to_string()))
}
