//! The response cache in front of a fleet.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::{Answer, post};
use crate::support::worker::{Deed, FakeWorker, Then};
use crate::support::{CHAT, MODEL, Setup, eventually};

fn chat(stream: bool) -> Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "temperature": 0, "stream": stream})
}

fn caching() -> Setup {
    Setup {
        cache: true,
        ..Setup::default()
    }
}

fn chunk(choices: &Value, usage: &Value) -> String {
    let chunk = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": MODEL,
                       "choices": choices, "usage": usage});
    format!("data: {chunk}\n\n")
}

/// A stream as vLLM writes it, that ends in this way.
fn speech(finish: &str) -> Deed {
    let delta = |delta: Value, end: Value| {
        chunk(
            &json!([{"index": 0, "delta": delta, "finish_reason": end}]),
            &Value::Null,
        )
    };
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12});
    let events = vec![
        delta(json!({"role": "assistant", "content": ""}), Value::Null),
        delta(json!({"content": "one "}), Value::Null),
        delta(json!({"content": "two"}), Value::Null),
        delta(json!({}), json!(finish)),
        chunk(&json!([]), &usage),
        "data: [DONE]\n\n".to_owned(),
    ];
    Deed::Stream(events, Then::End)
}

fn how(answer: &Answer) -> &str {
    let mut lines = answer.head.lines();
    lines
        .find_map(|line| line.strip_prefix("x-cache: "))
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_does_not_reach_a_worker() {
    let worker = FakeWorker::start(speech("stop")).await;
    let running = caching().start(&[&worker]).await;
    let made = post(running.address, CHAT, &chat(true)).await;
    assert_eq!(how(&made), "MISS");
    assert!(!made.text().contains("usage"), "{}", made.text());
    let mut hit = post(running.address, CHAT, &chat(true)).await;
    while how(&hit) != "HIT" {
        tokio::time::sleep(Duration::from_millis(5)).await;
        hit = post(running.address, CHAT, &chat(true)).await;
    }
    assert_eq!(hit.text(), made.text());
    let whole = post(running.address, CHAT, &chat(false)).await;
    assert_eq!(how(&whole), "HIT");
    assert_eq!(whole.json()["choices"][0]["message"]["content"], "one two");
    assert_eq!(worker.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_ask_the_same_reach_a_worker_once() {
    let worker = FakeWorker::start(speech("length")).await;
    let running = caching().start(&[&worker]).await;
    let address = running.address;
    let clients: Vec<_> = (0..50)
        .map(|number| {
            tokio::spawn(async move { post(address, CHAT, &chat(number % 2 == 0)).await })
        })
        .collect();
    let mut made = 0;
    for client in clients {
        let answer = client.await.unwrap();
        assert_eq!(answer.status, 200);
        made += usize::from(how(&answer) == "MISS");
    }
    assert_eq!((made, worker.seen().len()), (1, 1));
    eventually("the place is free", || running.in_flight() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_filtered_refused_or_broken_off_is_asked_for_again() {
    let broken = match speech("stop") {
        Deed::Stream(mut events, _) => {
            events.truncate(3);
            Deed::Stream(events, Then::HangUp)
        }
        other => other,
    };
    for bad in [
        speech("content_filter"),
        broken,
        Deed::Answer(400, "", r#"{"error": {"message": "no"}}"#.to_owned()),
    ] {
        let worker = FakeWorker::start(bad).await;
        let running = caching().start(&[&worker]).await;
        for _ in 0..2 {
            assert_eq!(how(&post(running.address, CHAT, &chat(true)).await), "MISS");
            eventually("the place is free", || running.in_flight() == 0).await;
        }
        assert_eq!(running.counter("forespeak_cache_stored_total").await, 0.0);
    }
}
