//! Clients that leave and servers that stop.

use std::time::Duration;

use crate::support::client::{get, open, post, read_rest, read_until, until_counted};
use crate::support::{Running, Setup};
use forespeak_gateway::ServerConfig;
use serde_json::json;
use tokio::net::TcpStream;

const COMPLETIONS: &str = "/v1/completions";

fn slow(step: Duration) -> Setup {
    Setup {
        step,
        ..Setup::default()
    }
}

async fn running_stream(running: &Running, tokens: usize) -> TcpStream {
    let request = json!({"prompt": "x", "max_tokens": tokens, "stream": true});
    let mut stream = open(running.address, COMPLETIONS, &request).await;
    read_until(&mut stream, "\"text\"").await;
    stream
}

/// How soon all is free when a client has left.
const FREE_WITHIN: Duration = Duration::from_millis(100);

/// A machine with other work may keep any single try from its processor; it does not do so every time, and what
/// frees too late by itself does.
const TRIES: usize = 5;

/// The shortest time that freeing took.
async fn best_of_tries(mut hang_up: impl AsyncFnMut() -> Duration) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..TRIES {
        best = best.min(hang_up().await);
        if best < FREE_WITHIN {
            break;
        }
    }
    best
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hang_up_frees_everything_within_100_ms() {
    let running = slow(Duration::from_millis(5)).start();
    let took = best_of_tries(async || {
        let stream = running_stream(&running, 500).await;
        assert_eq!(running.engine.metrics().running(), 1);
        assert!(running.engine.metrics().kv_cache_usage() > 0.0);
        drop(stream);
        crate::support::eventually("all is free", || {
            let metrics = running.engine.metrics();
            metrics.running() == 0 && metrics.kv_cache_usage() == 0.0
        })
        .await
    })
    .await;
    assert!(took < FREE_WITHIN, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hang_up_before_the_answer_frees_everything_too() {
    let running = slow(Duration::from_millis(5)).start();
    let mut tries = 0;
    let took = best_of_tries(async || {
        tries += 1;
        let request = json!({"prompt": "x", "max_tokens": 500});
        let stream = open(running.address, COMPLETIONS, &request).await;
        crate::support::eventually("it runs", || running.engine.metrics().running() == 1).await;
        drop(stream);
        crate::support::eventually("all is free", || running.engine.metrics().running() == 0).await
    })
    .await;
    assert!(took < FREE_WITHIN, "{took:?}");
    until_counted(running.address, &format!("status=\"499\"}} {tries}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_finishes_streams_and_refuses_newcomers() {
    let running = slow(Duration::from_millis(5)).start();
    let request = json!({"prompt": "x", "max_tokens": 60, "stream": true});
    let mut stream = open(running.address, COMPLETIONS, &request).await;
    let seen = read_until(&mut stream, "\"text\"").await;
    running.stop.pull();
    let answer = read_rest(&mut stream, seen).await;
    assert!(answer.text().ends_with("data: [DONE]\n\n"));
    assert!(answer.text().contains("\"finish_reason\":\"length\""));
    running.server.await.unwrap();
    assert!(TcpStream::connect(running.address).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_engine_has_ended_is_not_healthy() {
    let running = Setup::default().start();
    assert_eq!(get(running.address, "/health").await.status, 200);
    running.engine.stop();
    crate::support::eventually("the engine has ended", || !running.engine.is_alive()).await;
    let answer = get(running.address, "/health").await;
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains("restart"), "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_drain_timeout_cuts_what_is_not_finished() {
    let running = Setup {
        server: ServerConfig {
            drain_timeout: Duration::from_millis(50),
            ..Setup::default().server
        },
        ..slow(Duration::from_millis(20))
    }
    .start();
    let _stream = running_stream(&running, 500).await;
    running.stop.pull();
    let ended = tokio::time::timeout(Duration::from_secs(5), running.server).await;
    ended.expect("the time-out is over").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_pull_ends_at_once() {
    let running = slow(Duration::from_millis(20)).start();
    let _stream = running_stream(&running, 500).await;
    running.stop.pull();
    running.stop.pull();
    let ended = tokio::time::timeout(Duration::from_secs(5), running.server).await;
    ended.expect("it ends at once").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_keep_alive_connection_does_not_hold_up_a_drain() {
    let running = Setup::default().start();
    let _silent = TcpStream::connect(running.address).await.unwrap();
    assert_eq!(
        post(running.address, COMPLETIONS, &json!({"prompt": "x"}))
            .await
            .status,
        200
    );
    running.stop.pull();
    let ended = tokio::time::timeout(Duration::from_secs(5), running.server).await;
    ended.expect("nothing was running").unwrap();
}
