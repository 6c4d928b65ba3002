//! A real Redis under the response cache: killed, restarted, paused and resumed while clients ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::redis_server::RedisServer;

use crate::support::client::post;
use crate::support::worker::{Deed, FakeWorker};
use crate::support::{CHAT, MODEL, Running, Setup};

/// How long each trouble lasts: longer than it takes to notice, shorter than a connection is held on to.
const LASTS: Duration = Duration::from_millis(700);

fn chat(text: &str) -> Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": text}], "temperature": 0})
}

/// Asks until an answer comes out of Redis.
async fn until_it_is_used(running: &Running) {
    let hits = "forespeak_cache_hits_total{tier=\"redis\"}";
    let before = running.counter(hits).await;
    for _ in 0..2000 {
        post(running.address, CHAT, &chat("is anybody there?")).await;
        if running.counter(hits).await > before {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("redis is not used");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_befalls_redis_every_request_is_answered_and_rightly() {
    let mut redis = RedisServer::start().unwrap();
    let worker = FakeWorker::start(Deed::Echo).await;
    let setup = Setup {
        cache: true,
        cache_redis: Some(redis.address()),
        ..Setup::default()
    };
    let running = setup.start(&[&worker]).await;
    until_it_is_used(&running).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..6)
        .map(|client| {
            let (address, is_over) = (running.address, Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut asked = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let question = format!("question {}", (client * 7 + asked) % 20);
                    let answer = post(address, CHAT, &chat(&question)).await;
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    let said = &answer.json()["choices"][0]["message"]["content"];
                    assert_eq!(*said, json!(question));
                    asked += 1;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                asked
            })
        })
        .collect();
    let timed_out = "forespeak_cache_store_requests_total{operation=\"get\",outcome=\"timeout\"}";
    let before = running.counter(timed_out).await;
    tokio::time::sleep(LASTS).await;
    redis.kill();
    tokio::time::sleep(LASTS).await;
    redis.restart().unwrap();
    until_it_is_used(&running).await;
    redis.pause().unwrap();
    tokio::time::sleep(LASTS).await;
    redis.resume().unwrap();
    until_it_is_used(&running).await;
    is_over.store(true, Ordering::Relaxed);
    let mut asked = 0;
    for client in clients {
        asked += client.await.unwrap();
    }
    assert!(asked > 100, "{asked}");
    // Who waits in vain waits 20 ms, and no more than a few do before the breaker opens: those who were waiting
    // already, and those that it takes.
    let waited_in_vain = running.counter(timed_out).await - before;
    assert!(waited_in_vain <= 40.0, "{waited_in_vain}");
}
