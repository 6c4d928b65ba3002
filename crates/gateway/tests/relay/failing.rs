//! Workers that fail before they have said anything.

use std::time::Duration;

use forespeak_gateway::RelayTimeouts;
use serde_json::{Value, json};

use crate::support::client::{get, post};
use crate::support::worker::{Deed, FakeWorker, speech, whole};
use crate::support::{CHAT, MODEL, Setup, eventually};

fn chat(stream: bool) -> Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": stream})
}

fn failing() -> [(&'static str, Deed); 4] {
    [
        ("hang up", Deed::HangUp),
        ("500", Deed::Answer(500, "", "{}".to_owned())),
        (
            "503",
            Deed::Answer(503, "retry-after: 1\r\n", "{}".to_owned()),
        ),
        (
            "hang up after the head",
            Deed::Stream(vec![], crate::support::worker::Then::HangUp),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_before_the_first_byte_is_done_by_another_worker() {
    for (what, deed) in failing() {
        let bad = FakeWorker::start(deed).await;
        let good = FakeWorker::start(whole("fine")).await;
        let running = Setup::default().start(&[&bad, &good]).await;
        for _ in 0..4 {
            let answer = post(running.address, CHAT, &chat(true)).await;
            assert_eq!(answer.status, 200, "{what}: {}", answer.text());
            assert!(answer.text().contains("fine"));
        }
        assert!(!bad.seen().is_empty(), "{what}");
        assert_eq!(good.seen().len(), 4, "{what}");
        assert_eq!(running.in_flight(), 0, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_dead_worker_hangs_nobody() {
    let (dead, good) = (
        FakeWorker::start(whole("x")).await,
        FakeWorker::start(whole("x")).await,
    );
    let running = Setup::default().start(&[&dead, &good]).await;
    drop(dead);
    for _ in 0..20 {
        assert_eq!(post(running.address, CHAT, &chat(false)).await.status, 200);
    }
    eventually("it is out", || running.healthy() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wedged_worker_is_given_up_in_time_and_another_answers() {
    let stuck = FakeWorker::start(Deed::Wedge).await;
    let good = FakeWorker::start(speech(&["fine"])).await;
    let setup = Setup {
        timeouts: RelayTimeouts {
            first_byte: Duration::from_millis(200),
            ..RelayTimeouts::default()
        },
        ..Setup::default()
    };
    let running = setup.start(&[&stuck, &good]).await;
    for _ in 0..3 {
        let answer = post(running.address, CHAT, &chat(true)).await;
        assert!(answer.text().contains("fine"));
    }
    assert!(!stuck.seen().is_empty());
    eventually("the stuck worker was told", || stuck.open() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_takes_too_long_is_a_504() {
    let stuck = FakeWorker::start(Deed::Wedge).await;
    let setup = Setup {
        timeouts: RelayTimeouts {
            shortest_total: Duration::from_millis(100),
            longest_total: Duration::from_millis(100),
            ..RelayTimeouts::default()
        },
        ..Setup::default()
    };
    let running = setup.start(&[&stuck]).await;
    let answer = post(running.address, CHAT, &chat(false)).await;
    assert_eq!(answer.status, 504, "{}", answer.text());
    assert_eq!(running.in_flight(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_end_when_their_budget_does() {
    let workers = [
        FakeWorker::start(Deed::Answer(500, "", "{}".to_owned())).await,
        FakeWorker::start(Deed::Answer(500, "", "{}".to_owned())).await,
    ];
    let running = Setup::default().start(&[&workers[0], &workers[1]]).await;
    let requests = 60;
    for _ in 0..requests {
        let answer = post(running.address, CHAT, &chat(false)).await;
        assert!(
            answer.status == 502 || answer.status == 503,
            "{}",
            answer.text()
        );
    }
    let retries = running.counter("forespeak_relay_retries_total").await;
    // Twenty are there from the start, and each request pays for a fifth of one.
    assert!(retries <= 20.0 + f64::from(requests) / 5.0, "{retries}");
    assert!(
        running
            .counter("forespeak_relay_retries_exhausted_total")
            .await
            > 0.0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_was_closed_while_idle_costs_nothing() {
    let worker = FakeWorker::start(whole("x")).await;
    let running = Setup::default().start(&[&worker]).await;
    assert_eq!(post(running.address, CHAT, &chat(false)).await.status, 200);
    // It hangs up instead of answering over the connection that was kept, and is asked over a new one.
    worker.next([Deed::HangUp]);
    assert_eq!(post(running.address, CHAT, &chat(false)).await.status, 200);
    assert_eq!(worker.connections(), 2);
    assert_eq!(
        running
            .counter("forespeak_relay_failed_attempts_total")
            .await,
        0.0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_says_it_is_going_gets_nothing_new() {
    let goes = Deed::Answer(200, "x-forespeak-draining: 1\r\n", "{}".to_owned());
    let going = FakeWorker::start(goes).await;
    let staying = FakeWorker::start(whole("x")).await;
    let running = Setup::default().start(&[&going, &staying]).await;
    for _ in 0..6 {
        assert_eq!(post(running.address, CHAT, &chat(false)).await.status, 200);
    }
    assert_eq!(going.seen().len(), 1);
    assert_eq!(staying.seen().len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_is_ready_while_somebody_can_serve() {
    let workers = [
        FakeWorker::start(whole("x")).await,
        FakeWorker::start(whole("x")).await,
    ];
    let running = Setup::default().start(&[&workers[0], &workers[1]]).await;
    let ready = async || get(running.address, "/ready").await.status;
    assert_eq!(ready().await, 200);
    let [first, last] = workers;
    drop(first);
    eventually("it is out", || running.healthy() == 1).await;
    assert_eq!(ready().await, 200);
    drop(last);
    eventually("both are out", || running.healthy() == 0).await;
    assert_eq!(ready().await, 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_tenants_ask_is_counted_under_their_names() {
    let worker = FakeWorker::start(whole("x")).await;
    let running = Setup::default().start(&[&worker]).await;
    assert_eq!(post(running.address, CHAT, &chat(false)).await.status, 200);
    for (name, counted) in [
        ("forespeak_tenant_completion_tokens_total", 2.0),
        ("forespeak_tenant_requests_refused_total", 0.0),
        // An answer of known length is over with its last byte, although nobody asks for more.
        (
            "forespeak_http_requests_total{route=\"/v1/chat/completions\",status=\"200\"}",
            1.0,
        ),
    ] {
        assert_eq!(running.counter(name).await, counted, "{name}");
    }
}
