//! Clients that leave, and clients that dawdle.

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncReadExt;

use crate::support::client::{open, post, read_rest, read_until, until_counted};
use crate::support::worker::{Deed, FakeWorker, Then, ending, opening, whole, word};
use crate::support::{CHAT, MODEL, Setup, eventually};

fn chat(stream: bool) -> serde_json::Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": stream})
}

/// An answer from its opening to `[DONE]`.
fn said() -> Vec<String> {
    [vec![opening(), word("a")], ending(1, 1, 0)].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hang_up_in_a_stream_ends_the_work_and_the_reservation() {
    let worker = FakeWorker::start(Deed::Stream(vec![opening(), word("a")], Then::Wedge)).await;
    let running = Setup::default().start(&[&worker]).await;
    let mut client = open(running.address, CHAT, &chat(true)).await;
    read_until(&mut client, "\"a\"").await;
    assert_eq!((worker.open(), running.in_flight()), (1, 1));
    drop(client);
    // The worker is silent: only a closed connection can tell it.
    eventually("the worker was told", || worker.open() == 0).await;
    eventually("the place is free", || running.in_flight() == 0).await;
    until_counted(running.address, "status=\"499\"} 1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hang_up_before_the_first_byte_does_too() {
    for stream in [true, false] {
        let worker = FakeWorker::start(Deed::Wedge).await;
        let running = Setup::default().start(&[&worker]).await;
        let client = open(running.address, CHAT, &chat(stream)).await;
        eventually("it is there", || worker.open() == 1).await;
        drop(client);
        eventually("the worker was told", || worker.open() == 0).await;
        eventually("the place is free", || running.in_flight() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_is_held_until_the_stream_ends_and_no_longer() {
    let worker = FakeWorker::start(Deed::Stream(vec![opening(), word("a")], Then::Wedge)).await;
    let running = Setup::default().start(&[&worker]).await;
    let mut client = open(running.address, CHAT, &chat(true)).await;
    read_until(&mut client, "\"a\"").await;
    // The head and pieces have gone to the client: other gateways let go of the place here.
    assert_eq!(running.in_flight(), 1);
    worker.next([whole("x")]);
    assert_eq!(post(running.address, CHAT, &chat(false)).await.status, 200);
    assert_eq!(running.in_flight(), 1);
    drop(client);
    eventually("the place is free", || running.in_flight() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_leaves_with_the_last_word_was_answered() {
    let worker = FakeWorker::start(Deed::Stream(said(), Then::Wedge)).await;
    let running = Setup::default().start(&[&worker]).await;
    let mut client = open(running.address, CHAT, &chat(true)).await;
    read_until(&mut client, "[DONE]").await;
    // The worker has not ended its message, but the answer is whole: nothing is held for it any more.
    assert_eq!((worker.open(), running.in_flight()), (1, 0));
    drop(client);
    eventually("the worker was told", || worker.open() == 0).await;
    until_counted(running.address, "status=\"200\"} 1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_kept_by_whoever_waits_for_its_end() {
    let worker = FakeWorker::start(Deed::Stream(said(), Then::Wait)).await;
    let running = Setup::default().start(&[&worker]).await;
    let mut client = open(running.address, CHAT, &chat(true)).await;
    let seen = read_until(&mut client, "[DONE]").await;
    worker.release();
    read_rest(&mut client, seen).await;
    for _ in 0..3 {
        assert_eq!(post(running.address, CHAT, &chat(true)).await.status, 200);
    }
    assert_eq!(worker.connections(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_goes_on_behind_its_own_end_is_hung_up_on() {
    let worker = FakeWorker::start(Deed::Stream(said(), Then::GoOn)).await;
    let running = Setup::default().start(&[&worker]).await;
    let answer = post(running.address, CHAT, &chat(true)).await;
    assert_eq!(answer.events().last().unwrap(), "[DONE]");
    eventually("the worker was told", || worker.open() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_client_slows_its_worker_down_instead_of_filling_our_memory() {
    let big = word(&"x".repeat(16 << 10));
    let worker = FakeWorker::start(Deed::Stream(vec![opening(), big], Then::GoOn)).await;
    let running = Setup::default().start(&[&worker]).await;
    let mut client = open(running.address, CHAT, &chat(true)).await;
    read_until(&mut client, "xxx").await;
    // The client stops reading. What the worker can still write are the buffers of four sockets and ours.
    let mut before = 0;
    let start = std::time::Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = worker.written();
        if now == before {
            break;
        }
        before = now;
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "it never stopped"
        );
    }
    assert!(before < 64 << 20, "{before} bytes are on their way");
    // And it goes on when the client does.
    let mut taken = vec![0; 1 << 20];
    let mut total = 0;
    while total < before + (1 << 20) {
        total += client.read(&mut taken).await.unwrap();
    }
    assert!(worker.written() > before);
    drop(client);
    eventually("the place is free", || running.in_flight() == 0).await;
}
