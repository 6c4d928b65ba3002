//! Workers that are lost in the middle of a stream.

use serde_json::{Value, json};

use crate::support::client::{Answer, post};
use crate::support::worker::{Deed, FakeWorker, Then, ending, opening, word};
use crate::support::{CHAT, COMPLETIONS, MODEL, Setup};

fn greedy() -> Value {
    json!({
        "model": MODEL, "messages": [{"role": "user", "content": "hi"}],
        "stream": true, "temperature": 0, "max_tokens": 10,
        "stream_options": {"include_usage": true},
    })
}

/// Says two words and a half, then dies.
fn dying() -> Deed {
    let half = word("never seen")[..30].to_owned();
    let events = vec![opening(), word("one \"1\" "), word("two é "), half];
    Deed::Stream(events, Then::HangUp)
}

fn rest() -> Deed {
    let mut events = vec![opening(), word("three")];
    events.extend(ending(14, 1, 12));
    Deed::Stream(events, Then::End)
}

fn said(answer: &Answer) -> String {
    let chunks = answer.chunks();
    let contents = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
    contents.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_greedy_stream_goes_on_at_another_worker() {
    let (a, b) = (
        FakeWorker::start(rest()).await,
        FakeWorker::start(rest()).await,
    );
    let running = Setup::default().start(&[&a, &b]).await;
    a.next([dying()]);
    let mut answers = Vec::new();
    while a.seen().is_empty() {
        answers.push(post(running.address, CHAT, &greedy()).await);
    }
    let continued = answers.last().unwrap();
    assert_eq!(said(continued), "one \"1\" two é three");
    let roles = continued.text().matches("\"role\"").count();
    assert_eq!(roles, 1, "the answer is opened once");

    let asked = b.seen().last().unwrap().json();
    let messages = asked["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 2);
    assert_eq!(
        messages[1],
        json!({"role": "assistant", "content": "one \"1\" two é "})
    );
    assert_eq!(asked["continue_final_message"], true);
    assert_eq!(asked["add_generation_prompt"], false);
    assert_eq!(asked["max_tokens"], 8);

    // 14 prompt tokens there, of which two were the first worker's words.
    let usage = continued.chunks().last().unwrap()["usage"].clone();
    assert_eq!(usage["prompt_tokens"], 12);
    assert_eq!(usage["completion_tokens"], 3);
    assert_eq!(running.in_flight(), 0);
    assert!(
        running
            .counter("forespeak_relay_streams_continued_total")
            .await
            >= 1.0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_goes_on_from_its_longer_prompt() {
    let text = |text: &str| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"text\":\"{text}\",\"finish_reason\":null}}]}}\n\n"
        )
    };
    let last = "data: {\"choices\":[{\"index\":0,\"text\":\"!\",\"finish_reason\":\"stop\"}]}\n\n";
    let whole = Deed::Stream(
        vec![last.to_owned(), "data: [DONE]\n\n".to_owned()],
        Then::End,
    );
    let (a, b) = (
        FakeWorker::start(whole.clone()).await,
        FakeWorker::start(whole).await,
    );
    let running = Setup::default().start(&[&a, &b]).await;
    a.next([Deed::Stream(vec![text("b\\nc"), text("d")], Then::HangUp)]);
    let body = json!({"model": MODEL, "prompt": "a", "stream": true, "seed": 7});
    while a.seen().is_empty() {
        post(running.address, COMPLETIONS, &body).await;
    }
    assert_eq!(b.seen().last().unwrap().json()["prompt"], "ab\ncd");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_cannot_be_continued_ends_with_a_clear_error() {
    let worker = FakeWorker::start(dying()).await;
    let other = FakeWorker::start(dying()).await;
    let running = Setup::default().start(&[&worker, &other]).await;
    let mut sampled = greedy();
    sampled["temperature"] = json!(1.0);
    let answer = post(running.address, CHAT, &sampled).await;
    let events = answer.events();
    // Whole events, then the error, and no sign that all is well.
    assert_eq!(events.len(), 4, "{events:?}");
    let error: Value = serde_json::from_str(&events[3]).unwrap();
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("broke off"), "{message}");
    assert!(!answer.text().contains("never seen"));
    assert_eq!(
        worker.seen().len() + other.seen().len(),
        1,
        "nothing was tried again"
    );
    assert_eq!(running.in_flight(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_lost_after_the_last_word_costs_nothing() {
    let finish = ending(10, 1, 0)[0].clone();
    let deed = Deed::Stream(vec![opening(), word("all"), finish], Then::HangUp);
    let worker = FakeWorker::start(deed).await;
    let running = Setup::default().start(&[&worker]).await;
    let mut request = greedy();
    request["temperature"] = json!(1.0);
    let answer = post(running.address, CHAT, &request).await;
    assert_eq!(said(&answer), "all");
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_between_two_pieces_is_bounded() {
    use forespeak_gateway::RelayTimeouts;
    let deed = Deed::Stream(vec![opening(), word("one")], Then::Wedge);
    let worker = FakeWorker::start(deed).await;
    let setup = Setup {
        timeouts: RelayTimeouts {
            between: std::time::Duration::from_millis(100),
            ..RelayTimeouts::default()
        },
        ..Setup::default()
    };
    let running = setup.start(&[&worker]).await;
    let answer = post(running.address, CHAT, &greedy()).await;
    assert!(answer.text().contains("\"error\""), "{}", answer.text());
    assert_eq!(worker.open(), 0);
}
