//! A pool that hears KV events, in front of workers that read prompts by themselves: what it predicts must
//! be what they then report.

use bytes::Bytes;
use fleet::{EventsSpec, FleetConfig, WorkerSpec, WorkerUrl};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use model::{ChatTemplate, Tokenizer};
use protocol::survey::Survey;
use serde_json::{Value, json};
use testkit::mock_vllm::{MockConfig, MockVllm, Vocabulary};
use testkit::tiny_models::{CHAT_TEMPLATE, TinyModel};

use super::*;
use crate::{Codec, ModelCodec};

const SALT: &str = "a tenant's salt";
const BLOCK: u64 = 16;

pub(super) fn tokenizer() -> Arc<Tokenizer> {
    let folder = tempfile::tempdir().unwrap();
    TinyModel::default().write_folder(folder.path()).unwrap();
    let file = std::fs::read(folder.path().join("tokenizer.json")).unwrap();
    Arc::new(Tokenizer::from_json("tokenizer.json", &file).unwrap())
}

fn template() -> Option<ChatTemplate> {
    Some(ChatTemplate::new(CHAT_TEMPLATE, "", "").unwrap())
}

pub(super) async fn mock(tokenizer: Arc<Tokenizer>) -> MockVllm {
    let vocabulary = Vocabulary::model(tokenizer, template()).unwrap();
    let config = MockConfig {
        vocabulary,
        publishes_events: true,
        ..MockConfig::default()
    };
    MockVllm::start(config).await.unwrap()
}

/// A pool in front of workers of so many ranks.
pub(super) fn pool_over(
    mocks: &[MockVllm],
    ranks: u32,
    change: impl FnOnce(&mut PoolConfig),
) -> Pool {
    let spec = |mock: &MockVllm| {
        let (endpoint, replay) = mock.event_endpoints().unwrap();
        let mut spec = WorkerSpec::new(WorkerUrl::parse(&mock.url()).unwrap());
        spec.events = Some(EventsSpec {
            endpoint,
            replay: Some(replay),
            topic: String::new(),
            ranks,
        });
        spec
    };
    let fleet = FleetConfig {
        workers: mocks.iter().map(spec).collect(),
        ..FleetConfig::default()
    };
    let codec: Arc<dyn Codec> = Arc::new(ModelCodec::new(tokenizer(), template()));
    let mut config = PoolConfig::new("default", fleet);
    change(&mut config);
    Pool::start(config, Some(codec)).unwrap()
}

/// What came of a chat that was sent where the pool said.
struct Turn {
    worker: fleet::WorkerId,
    text: String,
    /// Tokens by which the prediction was off.
    off_by: u64,
    /// Tokens whose keys and values the worker has computed.
    computed: u64,
}

async fn turn(pool: &Pool, messages: &[Value]) -> Turn {
    let body = json!({"model": "mock", "messages": messages, "max_tokens": 40, "cache_salt": SALT});
    let body = Bytes::from(serde_json::to_vec(&body).unwrap());
    let survey = Survey::read(&body).unwrap();
    let ask = Ask {
        salt: Arc::from(SALT),
        prompt: PromptSpans::chat(&survey, &body),
        body: body.clone(),
        max_tokens: Some(40),
        ..ask("t", 1)
    };
    let placement = pool.place(&ask, &[]).await.unwrap();
    let (worker, predicted) = (placement.worker().id(), placement.predicted_cached());
    let uri = placement
        .worker()
        .spec()
        .url
        .join("/v1/chat/completions")
        .unwrap();
    let request = http::Request::post(uri)
        .header("content-type", "application/json")
        .body(Full::new(body))
        .unwrap();
    let response = Client::builder(TokioExecutor::new())
        .build_http()
        .request(request)
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let answer = response.into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    let usage = |path| answer.pointer(path).and_then(Value::as_u64);
    let cached = usage("/usage/prompt_tokens_details/cached_tokens").unwrap();
    assert_eq!(
        usage("/usage/prompt_tokens"),
        Some(placement.chosen().prompt_tokens)
    );
    placement.settle(Outcome::Finished(Reported {
        prompt_tokens: usage("/usage/prompt_tokens"),
        completion_tokens: usage("/usage/completion_tokens"),
        cached_tokens: Some(cached),
    }));
    let text = answer.pointer("/choices/0/message/content");
    Turn {
        worker,
        text: text.and_then(Value::as_str).unwrap().to_owned(),
        off_by: cached.abs_diff(predicted),
        // The last token was made, and not read any more.
        computed: usage("/usage/total_tokens").unwrap() - 1,
    }
}

fn announced(pool: &Pool, worker: fleet::WorkerId) -> u64 {
    let report = pool.report();
    let worker = report.workers.iter().find(|one| one.number == worker.0);
    worker.unwrap().cache.as_ref().unwrap().announced_blocks
}

#[tokio::test]
async fn a_growing_chat_stays_where_it_is_cached_and_is_predicted_within_a_block() {
    let mocks = [mock(tokenizer()).await, mock(tokenizer()).await];
    let pool = pool_over(&mocks, 1, |_| {});
    let heard = |worker: &WorkerReport| {
        worker.kv_events.connected == 1
            && worker.condition == "healthy"
            && worker
                .cache
                .as_ref()
                .is_some_and(|cache| cache.source == routing::index::Source::Events)
    };
    until(|| pool.report().workers.iter().all(heard)).await;

    let system =
        json!({"role": "system", "content": "the model and the token of the world ".repeat(8)});
    let mut messages = vec![system];
    let mut home = None;
    for number in 0..10 {
        let question = format!("Hello {number}, and the answer to the model? ").repeat(4);
        messages.push(json!({"role": "user", "content": question}));
        let turn = turn(&pool, &messages).await;
        assert_eq!(
            *home.get_or_insert(turn.worker),
            turn.worker,
            "turn {number}"
        );
        assert!(
            turn.off_by <= BLOCK,
            "turn {number} was off by {} tokens",
            turn.off_by
        );
        messages.push(json!({"role": "assistant", "content": turn.text}));
        // What was generated is announced, too, and part of the next turn's prompt.
        until(|| announced(&pool, turn.worker) >= turn.computed / BLOCK).await;
    }
    let report = pool.report();
    let used = report
        .workers
        .iter()
        .find(|worker| Some(fleet::WorkerId(worker.number)) == home);
    let used = used.unwrap();
    assert_eq!(used.predicted_within_a_block, 1.0);
    assert!(!used.kv_events_missing && used.cache.as_ref().unwrap().orphans == 0);
}
