//! What a worker says of itself.

use std::time::{Duration, Instant};

use bytes::Bytes;
use fleet::WorkerSpec;
use fleet::observe::Observation;
use fleet::scrape::{GetError, Getter, MAX_PAGE_BYTES, Page};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use crate::wiring::{Learnt, ask_for_models};

/// How long a worker may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// For a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// The largest answer to a small question.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// What every worker is asked to cut into tokens: words, digits, spaces, several scripts, code and specials, so that
/// two tokenizers that agree on it agree on nearly everything.
pub(super) const SAMPLE: &str = "The quick brown fox, 12345 + 67,89 = ?\n\tfn main() { println!(\"héllo wörld\"); }  \
    日本語のテキスト Привет мир <|im_start|>user\n\n   three   spaces…";

/// What a worker says of itself.
pub(super) struct Said {
    /// How long its health page took, or why there is none.
    pub(super) health: Result<(u16, Duration), GetError>,
    pub(super) version: Option<String>,
    pub(super) models: Result<Learnt, String>,
    /// Its metrics page, or why there is none.
    pub(super) metrics: Result<Observation, String>,
    /// The tokens of [`SAMPLE`], or why there are none.
    pub(super) tokens: Result<Vec<u32>, String>,
}

pub(super) async fn ask(worker: &WorkerSpec) -> Said {
    let asking = Asking {
        worker,
        getter: Getter::new(CONNECT_WITHIN, true, worker.api_key.clone()),
    };
    let begun = Instant::now();
    let health = asking.get(&worker.health_path, MAX_ANSWER_BYTES).await;
    let health = health.map(|page| (page.status, begun.elapsed()));
    let models = ask_for_models(worker).await;
    let model = models
        .as_ref()
        .ok()
        .and_then(|models| models.names.first().cloned());
    Said {
        health,
        version: asking.version().await,
        models,
        metrics: asking.metrics().await,
        tokens: asking.tokens(model.as_deref()).await,
    }
}

struct Asking<'a> {
    worker: &'a WorkerSpec,
    getter: Getter,
}

impl Asking<'_> {
    async fn get(&self, path: &str, most: usize) -> Result<Page, GetError> {
        let uri = self.worker.url.join(path).ok_or(GetError::Address)?;
        self.getter.get(uri, ANSWER_WITHIN, most).await
    }

    async fn version(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Version {
            version: String,
        }
        let page = self.get("/version", MAX_ANSWER_BYTES).await.ok()?;
        let version: Version = serde_json::from_slice(&page.body).ok()?;
        Some(version.version)
    }

    async fn metrics(&self) -> Result<Observation, String> {
        let path = &self.worker.metrics_path;
        if path.is_empty() {
            return Err("it has none by its configuration".to_owned());
        }
        let page = self
            .get(path, MAX_PAGE_BYTES)
            .await
            .map_err(|error| error.to_string())?;
        if page.status != 200 {
            return Err(format!("{path} answers {}", page.status));
        }
        let text = std::str::from_utf8(&page.body).map_err(|error| error.to_string())?;
        let seen = Observation::try_from_page(text).map_err(|error| error.to_string())?;
        seen.ok_or_else(|| format!("{path} has no metrics that are known here"))
    }

    async fn tokens(&self, model: Option<&str>) -> Result<Vec<u32>, String> {
        #[derive(Deserialize)]
        struct Answer {
            tokens: Vec<u32>,
        }
        let body = json!({ "model": model, "prompt": SAMPLE, "add_special_tokens": false });
        let answered = timeout(ANSWER_WITHIN, self.post("/tokenize", body.to_string())).await;
        let body = answered.map_err(|_elapsed| "no answer in time".to_owned())??;
        let answer: Answer = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        Ok(answer.tokens)
    }

    async fn post(&self, path: &str, body: String) -> Result<Bytes, String> {
        let uri = self
            .worker
            .url
            .join(path)
            .ok_or("its address cannot be used")?;
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(uri)
            .header(CONTENT_TYPE, "application/json");
        if let Some(key) = &self.worker.api_key {
            request = request.header(AUTHORIZATION, format!("Bearer {}", key.reveal()));
        }
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| error.to_string())?;
        let client = Client::builder(TokioExecutor::new()).build_http();
        let response = client
            .request(request)
            .await
            .map_err(|error| error.to_string())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES)
            .collect()
            .await
            .map_err(|error| error.to_string())?
            .to_bytes();
        if status.is_success() {
            Ok(body)
        } else {
            Err(format!("{path} answers {}", status.as_u16()))
        }
    }
}
