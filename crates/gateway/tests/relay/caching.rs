//! The response cache in front of a fleet.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::{Answer, open, post, read_rest, read_until, scramble, seed};
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
async fn two_hundred_who_ask_the_same_reach_a_worker_once_though_some_leave() {
    let seed = seed();
    let Deed::Stream(events, _) = speech("length") else {
        unreachable!("a stream");
    };
    let worker = FakeWorker::start(Deed::Slowly(events, Duration::from_millis(100))).await;
    let running = caching().start(&[&worker]).await;
    let address = running.address;
    // The first opens the flight, so that nobody who leaves takes it along.
    let mut first = open(address, CHAT, &chat(true)).await;
    let seen = read_until(&mut first, "\"assistant\"").await;
    let clients: Vec<_> = (0..199_u64)
        .map(|number| {
            let draw = scramble(seed ^ number);
            tokio::spawn(async move {
                let streams = draw & 1 == 0;
                let mut client = open(address, CHAT, &chat(streams)).await;
                match draw >> 1 & 7 {
                    0 => return None,
                    1 => {
                        let patience = Duration::from_millis(draw >> 8 & 0x1ff);
                        let read = read_rest(&mut client, Vec::new());
                        // Leaves in the middle, or has heard it all.
                        tokio::time::timeout(patience, read).await.ok()?
                    }
                    _ => read_rest(&mut client, Vec::new()).await,
                }
                .into()
            })
        })
        .collect();
    let made = read_rest(&mut first, seen).await;
    assert_eq!(how(&made), "MISS");
    let mut whole: Option<Answer> = None;
    let mut answered = 0;
    for client in clients {
        let answer: Option<Answer> = client.await.unwrap();
        let Some(answer) = answer else { continue };
        answered += 1;
        assert_eq!(answer.status, 200);
        assert!(
            matches!(how(&answer), "COALESCED" | "HIT"),
            "{}",
            answer.head
        );
        if answer.head.contains("text/event-stream") {
            assert_eq!(answer.text(), made.text());
        } else {
            let first = whole.get_or_insert_with(|| Answer {
                body: answer.body.clone(),
                head: String::new(),
                status: 200,
            });
            assert_eq!(answer.text(), first.text());
            assert_eq!(answer.json()["choices"][0]["message"]["content"], "one two");
        }
    }
    assert!(answered > 100, "{answered}");
    assert_eq!(worker.seen().len(), 1);
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
