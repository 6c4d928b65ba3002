//! The mock on its socket: it answers as it should, and misbehaves as it is told.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod client;

use std::time::Duration;

use client::{get, open, post};
use forespeak_testkit::mock_vllm::{
    Books, EventFault, MetricsFault, Misdeed, MockConfig, MockVllm,
};
use protocol::kv_events::{KvEvent, decode_batch};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use zeromq::{Socket, SocketRecv, SocketSend};

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

async fn start() -> MockVllm {
    MockVllm::start(MockConfig::default()).await.unwrap()
}

fn chat(question: &str, more: &Value) -> Value {
    let mut body = json!({"model": "mock", "messages": [{"role": "user", "content": question}]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

async fn eventually(what: &str, mock: &MockVllm, holds: impl Fn(&Books) -> bool) {
    let waiting = async {
        while !holds(&mock.books()) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .unwrap_or_else(|_| panic!("{what}: {:?}", mock.books()));
}

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn the_streamed_and_the_whole_answer_are_the_same() {
    let mock = start().await;
    let whole = post(mock.address(), CHAT, &chat("What is a Pod?", &json!({}))).await;
    assert_eq!(whole.status, 200);
    let streamed = json!({"stream": true, "stream_options": {"include_usage": true}});
    let streamed = post(mock.address(), CHAT, &chat("What is a Pod?", &streamed)).await;
    let whole = whole.json();
    assert_eq!(
        whole["choices"][0]["message"]["content"],
        streamed.streamed_text()
    );
    let events = streamed.events();
    assert_eq!(events.last().unwrap(), "[DONE]");
    let usage: Value = serde_json::from_str(&events[events.len() - 2]).unwrap();
    assert_eq!(
        usage["usage"]["completion_tokens"],
        whole["usage"]["completion_tokens"]
    );
    eventually("all is done", &mock, |books| {
        books.stopped + books.length == 2
    })
    .await;
    assert_eq!(mock.books().aborted, 0);
}

#[tokio::test]
async fn a_second_request_finds_the_first_ones_blocks_unless_its_salt_differs() {
    let mock = start().await;
    let question = "word ".repeat(100);
    let mut cached = Vec::new();
    for salt in ["a", "a", "b"] {
        let body = chat(&question, &json!({"cache_salt": salt, "max_tokens": 4}));
        let reply = post(mock.address(), CHAT, &body).await.json();
        let usage = &reply["usage"];
        cached.push(
            usage["prompt_tokens_details"]["cached_tokens"]
                .as_u64()
                .unwrap(),
        );
        assert!(usage["prompt_tokens"].as_u64().unwrap() > 100);
    }
    assert_eq!(cached[0], 0);
    assert!(cached[1] >= 96, "{cached:?}");
    assert_eq!(cached[2], 0);
}

#[tokio::test]
async fn an_answer_can_be_continued_from_its_middle() {
    let mock = start().await;
    let all = chat(
        "Tell me more",
        &json!({"max_tokens": 30, "ignore_eos": true}),
    );
    let all = post(mock.address(), CHAT, &all).await.json();
    let text = all["choices"][0]["message"]["content"].as_str().unwrap();
    let words: Vec<&str> = text.split_inclusive(' ').collect();
    let begun = words[..12].concat();
    let body = json!({
        "messages": [
            {"role": "user", "content": "Tell me more"},
            {"role": "assistant", "content": begun.trim_end()},
        ],
        "continue_final_message": true, "add_generation_prompt": false,
        "max_tokens": 19, "ignore_eos": true,
    });
    let rest = post(mock.address(), CHAT, &body).await.json();
    let rest = rest["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(format!("{}{rest}", begun.trim_end()), text);
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_blocks() {
    let mock = start().await;
    let body = chat(
        "Stay",
        &json!({"stream": true, "max_tokens": 9_000, "ignore_eos": true}),
    );
    let mut stream = open(mock.address(), CHAT, &body).await;
    let mut some = [0; 512];
    assert!(stream.read(&mut some).await.unwrap() > 0);
    eventually("it runs", &mock, |books| {
        books.running == 1 && books.kv_usage > 0.0
    })
    .await;
    drop(stream);
    eventually("it is gone", &mock, |books| {
        books.aborted == 1 && books.running == 0 && books.kv_usage == 0.0
    })
    .await;
}

#[tokio::test]
async fn misdeeds_come_in_the_order_of_the_script() {
    let mock = start().await;
    mock.script([
        Misdeed::Status(503),
        Misdeed::Reset,
        Misdeed::CutAfter { tokens: 3 },
        Misdeed::ErrorEventAfter { tokens: 2 },
    ]);
    let body = chat(
        "Hi",
        &json!({"stream": true, "max_tokens": 8, "ignore_eos": true}),
    );
    let refused = post(mock.address(), CHAT, &body).await;
    assert_eq!(refused.status, 503);
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    assert_eq!(post(mock.address(), CHAT, &body).await.status, 0);
    let cut = post(mock.address(), CHAT, &body).await;
    assert_eq!((cut.status, cut.complete), (200, false));
    assert_eq!(cut.streamed_text().split_whitespace().count(), 3);
    let failed = post(mock.address(), CHAT, &body).await;
    assert!(failed.complete && failed.events()[3].starts_with("{\"error\""));
    let fine = post(mock.address(), CHAT, &body).await;
    assert!(fine.complete && fine.streamed_text().split_whitespace().count() == 8);
    assert_eq!(mock.books().misdeeds, 4);
}

#[tokio::test]
async fn a_wedged_engine_accepts_and_answers_once_repaired() {
    let mock = start().await;
    mock.faults(|faults| faults.wedged = true);
    let body = chat("Hi", &json!({"max_tokens": 2}));
    let address = mock.address();
    let asking = tokio::spawn(async move { post(address, CHAT, &body).await });
    eventually("it waits or runs", &mock, |books| books.received == 1).await;
    assert_eq!(get(mock.address(), "/health").await.status, 200);
    assert!(!asking.is_finished());
    mock.faults(|faults| faults.wedged = false);
    let reply = tokio::time::timeout(PATIENCE, asking)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(reply.status, 200);
}

#[tokio::test]
async fn the_metrics_have_todays_names_and_can_be_spoilt() {
    let mock = start().await;
    post(
        mock.address(),
        CHAT,
        &chat("Hi", &json!({"max_tokens": 2, "ignore_eos": true})),
    )
    .await;
    let page = get(mock.address(), "/metrics").await.body;
    for line in [
        "vllm:generation_tokens_total{engine=\"0\",model_name=\"mock\"} 2.0",
        "vllm:num_requests_running{engine=\"0\",model_name=\"mock\"} 0.0",
        "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"mock\"} 1.0",
        "kv_cache_size_tokens=\"16384\"",
    ] {
        assert!(page.contains(line), "{line} in\n{page}");
    }
    mock.faults(|faults| faults.metrics = MetricsFault::Failing);
    assert_eq!(get(mock.address(), "/metrics").await.status, 500);
    mock.faults(|faults| faults.draining = true);
    let health = get(mock.address(), "/health").await;
    assert!(
        health.head.contains("x-forespeak-draining"),
        "{}",
        health.head
    );
}

#[tokio::test]
async fn stored_blocks_are_announced_with_their_tokens_and_replayed() {
    let config = MockConfig {
        publishes_events: true,
        ..MockConfig::default()
    };
    let mock = MockVllm::start(config).await.unwrap();
    mock.faults(|faults| faults.events = EventFault::Lost);
    let prompt: Vec<u32> = (1..=40).collect();
    let body = json!({"prompt": prompt, "max_tokens": 1, "cache_salt": "tenant"});
    assert_eq!(
        post(mock.address(), "/v1/completions", &body).await.status,
        200
    );

    let (_, replay) = mock.event_endpoints().unwrap();
    let mut dealer = zeromq::DealerSocket::new();
    dealer.connect(&replay).await.unwrap();
    let mut ask = zeromq::ZmqMessage::from(bytes::Bytes::new());
    ask.push_back(bytes::Bytes::copy_from_slice(&0u64.to_be_bytes()));
    dealer.send(ask).await.unwrap();
    let answer = tokio::time::timeout(PATIENCE, dealer.recv())
        .await
        .unwrap()
        .unwrap();
    let batch = decode_batch(answer.get(3).unwrap()).unwrap();
    let [KvEvent::Stored(stored)] = &batch.events[..] else {
        panic!("{batch:?}");
    };
    assert_eq!(stored.token_ids, prompt[..32]);
    assert_eq!((stored.block_hashes.len(), stored.block_size), (2, 16));
    assert_eq!(stored.extra_keys.len(), 2);
    assert_eq!(stored.parent_block_hash, None);
}

#[tokio::test]
async fn a_killed_mock_comes_back_on_the_same_port() {
    let config = MockConfig {
        publishes_events: true,
        ..MockConfig::default()
    };
    let mock = MockVllm::start(config).await.unwrap();
    let (address, endpoints) = (mock.address(), mock.event_endpoints());
    let config = mock.kill().await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    let mock = MockVllm::start(config).await.unwrap();
    assert_eq!(
        (mock.address(), mock.event_endpoints()),
        (address, endpoints)
    );
    assert_eq!(get(address, "/health").await.status, 200);
}
