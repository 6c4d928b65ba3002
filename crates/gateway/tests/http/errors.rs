//! Every refusal: its status, its shape, and whether it says what to change.

use crate::support::client::{Answer, get, open, post, post_with, read_until, send};
use crate::support::{MODEL, Setup};
use engine::EngineConfig;
use forespeak_gateway::tenants::{KeyHash, SaltSecret, Tenants};
use protocol::limits::MAX_BODY_BYTES;
use serde_json::{Value, json};
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn refusal(answer: &Answer, status: u16) -> Value {
    assert_eq!(answer.status, status, "{}", answer.text());
    let error = answer.json()["error"].clone();
    assert!(error["message"].is_string(), "{error}");
    assert!(error["type"].is_string(), "{error}");
    assert!(
        error.get("param").is_some() && error.get("code").is_some(),
        "{error}"
    );
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_are_400_and_name_the_field() {
    let running = Setup::default().start();
    let broken = post_with(running.address, CHAT, "", b"{\"messages\": [}").await;
    let error = refusal(&broken, 400);
    assert!(
        error["message"].as_str().unwrap().contains("column 15"),
        "{error}"
    );

    let messages = json!([{"role": "user", "content": "x"}]);
    for (param, request) in [
        ("messages", json!({})),
        (
            "temperature",
            json!({"messages": messages, "temperature": 3}),
        ),
        (
            "tools",
            json!({"messages": messages, "tools": [{"type": "function"}]}),
        ),
        (
            "logit_bias",
            json!({"messages": messages, "logit_bias": {"9999": 1}}),
        ),
        (
            "stop_token_ids",
            json!({"messages": messages, "stop_token_ids": [9999]}),
        ),
        (
            "response_format",
            json!({"messages": messages, "response_format": {"type": "xml"}}),
        ),
    ] {
        let error = refusal(&post(running.address, CHAT, &request).await, 400);
        assert_eq!(error["param"], param);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_can_never_fit_is_400_with_the_numbers() {
    let running = Setup::default().start();
    let request = json!({"prompt": "x".repeat(600)});
    let error = refusal(&post(running.address, COMPLETIONS, &request).await, 400);
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("512") && message.contains("600"),
        "{message}"
    );
    assert_eq!(error["code"], "context_length_exceeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_tokens_models_and_paths_are_told() {
    let running = Setup::default().start();
    let error = refusal(
        &post(running.address, COMPLETIONS, &json!({"prompt": [70000]})).await,
        400,
    );
    assert_eq!(error["param"], "prompt");
    let request = json!({"model": "gpt-4", "prompt": "x"});
    let error = refusal(&post(running.address, COMPLETIONS, &request).await, 404);
    assert_eq!(error["code"], "model_not_found");
    assert!(error["message"].as_str().unwrap().contains(MODEL));
    refusal(&get(running.address, "/v1/models/gpt-4").await, 404);
    refusal(&get(running.address, "/v1/models/%ff").await, 404);
    refusal(&get(running.address, "/v2/anything").await, 404);
    refusal(&get(running.address, CHAT).await, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_json_of_bounded_size_is_read() {
    let running = Setup::default().start();
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let answer = post_with(running.address, CHAT, form, b"{}").await;
    let error = refusal(&answer, 415);
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("application/json")
    );

    let announced = vec![b' '; MAX_BODY_BYTES + 1];
    refusal(&post_with(running.address, CHAT, "", &announced).await, 413);

    let chunk = "x".repeat(MAX_BODY_BYTES / 2);
    let unannounced = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n\
         {0:x}\r\n{chunk}\r\n{0:x}\r\n{chunk}\r\n1\r\nx\r\n0\r\n\r\n",
        chunk.len()
    );
    refusal(&send(running.address, unannounced.as_bytes()).await, 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_asked_for_where_it_matters() {
    let running = Setup {
        tenants: Tenants::with_keys(vec![KeyHash::of("secret")], &SaltSecret::random()),
        ..Setup::default()
    }
    .start();
    let request = json!({"prompt": "x", "max_tokens": 1});
    let error = refusal(&post(running.address, COMPLETIONS, &request).await, 401);
    assert_eq!(error["code"], "invalid_api_key");
    refusal(&get(running.address, "/v1/models").await, 401);
    refusal(&post(running.address, "/tokenize", &request).await, 401);
    let body = request.to_string();
    let right = "authorization: Bearer secret\r\n";
    let answer = post_with(running.address, COMPLETIONS, right, body.as_bytes()).await;
    assert_eq!(answer.status, 200);
    for path in ["/health", "/ready", "/metrics", "/version"] {
        assert_eq!(get(running.address, path).await.status, 200, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_429_with_a_time_to_retry() {
    let running = Setup {
        step: Duration::from_millis(20),
        engine: EngineConfig {
            max_num_seqs: 1,
            max_queued: 1,
            max_model_len: 512,
            num_blocks: 64,
            ..EngineConfig::default()
        },
        ..Setup::default()
    }
    .start();
    let long = json!({"prompt": "x", "max_tokens": 500, "stream": true, "ignore_eos": true});
    let mut first = open(running.address, COMPLETIONS, &long).await;
    read_until(&mut first, "text_completion").await;
    let _second = open(running.address, COMPLETIONS, &long).await;
    crate::support::eventually("the second waits", || {
        running.engine.metrics().waiting() == 1
    })
    .await;
    let answer = post(running.address, COMPLETIONS, &long).await;
    refusal(&answer, 429);
    assert!(answer.head.contains("retry-after: 1"), "{}", answer.head);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_id_comes_back() {
    let running = Setup::default().start();
    let id = "x-request-id: my-id-7\r\n";
    let answer = post_with(running.address, CHAT, id, b"{}").await;
    assert!(
        answer.head.contains("x-request-id: my-id-7"),
        "{}",
        answer.head
    );
    let answer = post(running.address, CHAT, &json!({})).await;
    assert!(answer.head.contains("x-request-id: "), "{}", answer.head);
}
