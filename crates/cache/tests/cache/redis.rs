//! A real `redis-server`: killed, paused and restarted under load.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forespeak_cache as cache;
use tempfile::TempDir;
use testkit::redis_server::RedisServer;

use cache::{Cache, GET_BUDGET, Scope, Secret, Stores};

use crate::support::{Server, ask, chat, streamed, until};

/// A gateway's cache with this Redis and so much memory in front of it.
fn cache_of(redis: &RedisServer, memory_bytes: u64) -> Arc<Cache> {
    let stores = Stores {
        memory_bytes,
        redis: Some(redis.address()),
    };
    Arc::new(Cache::new(&Secret::from_text("shared by all gateways"), &stores).unwrap())
}

/// Waits until a cache both keeps and finds.
async fn until_it_works(cache: &Arc<Cache>, server: &Server, text: &str) {
    let body = chat(text);
    until("redis is used", async || {
        let how = ask(cache, &body, || server.answer(&body)).await.how;
        until("nothing is in flight", async || cache.counts().flights == 0).await;
        how == "HIT"
    })
    .await;
}

#[tokio::test]
async fn gateways_share_what_is_kept_in_redis() {
    let redis = RedisServer::start().unwrap();
    let (one, other, server) = (
        cache_of(&redis, 0),
        cache_of(&redis, 1 << 20),
        Server::default(),
    );
    until_it_works(&one, &server, "hi").await;
    let generations = server.count();
    until("the other gateway finds it, too", async || {
        ask(&other, &streamed("hi"), || server.answer(&streamed("hi")))
            .await
            .how
            == "HIT"
    })
    .await;
    // Where memory stands in front it is found there the next time.
    let seen = ask(&other, &chat("hi"), || unreachable!("it is kept")).await;
    assert!(seen.text().contains(":4 "), "{generations}");
    assert!(other.counts().hits[0] >= 1);
}

#[tokio::test]
async fn an_invalidation_reaches_the_other_gateways() {
    let redis = RedisServer::start().unwrap();
    let (one, other, server) = (
        cache_of(&redis, 1 << 20),
        cache_of(&redis, 1 << 20),
        Server::default(),
    );
    until_it_works(&one, &server, "hi").await;
    until_it_works(&other, &server, "hi").await;
    until("the others are told", async || {
        one.invalidate(Scope::Model("m")).await
    })
    .await;
    until("the other gateway has heard", async || {
        let body = chat("hi");
        let how = ask(&other, &body, || server.answer(&body)).await.how;
        how == "MISS"
    })
    .await;
}

#[tokio::test]
async fn a_gateway_that_comes_later_knows_what_was_invalidated() {
    let redis = RedisServer::start().unwrap();
    let (one, server) = (cache_of(&redis, 0), Server::default());
    until_it_works(&one, &server, "old").await;
    until_it_works(&one, &server, "warm").await;
    assert!(one.invalidate(Scope::All).await);
    let late = cache_of(&redis, 0);
    let mut seen = Vec::new();
    until("the late gateway uses redis", async || {
        let body = chat("old");
        // Whatever it answers before: never from before the invalidation.
        let answer = ask(&late, &body, || server.answer(&body)).await;
        until("nothing is in flight", async || late.counts().flights == 0).await;
        seen.push((answer.how, answer.text()));
        answer.how == "HIT"
    })
    .await;
    assert!(
        seen.iter().all(|(_, text)| !text.starts_with("1:")),
        "{seen:?}"
    );
}

#[tokio::test]
async fn a_forged_or_foreign_entry_is_a_miss() {
    let redis = RedisServer::start().unwrap();
    let (cache, server) = (cache_of(&redis, 0), Server::default());
    until_it_works(&cache, &server, "hi").await;
    until_it_works(&cache, &server, "ho").await;
    let client = ::redis::Client::open(redis.address()).unwrap();
    let mut link = client.get_multiplexed_async_connection().await.unwrap();
    let keys: Vec<String> = ::redis::cmd("KEYS")
        .arg("forespeak:cache:1:*")
        .query_async(&mut link)
        .await
        .unwrap();
    let entries: Vec<&String> = keys.iter().filter(|key| !key.ends_with("epochs")).collect();
    assert_eq!(entries.len(), 2);
    // One entry under the other's name, and a flipped bit.
    let get = |key: &str| ::redis::Cmd::get(key.to_owned());
    let moved: Vec<u8> = get(entries[0]).query_async(&mut link).await.unwrap();
    let mut bent: Vec<u8> = get(entries[1]).query_async(&mut link).await.unwrap();
    bent[60] ^= 1;
    for (key, entry) in [(entries[1], moved), (entries[0], bent)] {
        let set = ::redis::Cmd::set(key, entry);
        set.exec_async(&mut link).await.unwrap();
    }
    let before = cache.counts();
    for text in ["hi", "ho"] {
        let body = chat(text);
        assert_eq!(
            ask(&cache, &body, || server.answer(&body)).await.how,
            "MISS"
        );
    }
    assert_eq!(cache.counts().rejected, before.rejected + 2);
}

/// Requests while `disturb` does its worst: each is answered, and rightly.
async fn load(
    cache: &Arc<Cache>,
    server: &Server,
    disturb: impl FnOnce(),
    rounds: usize,
) -> Vec<Duration> {
    let mut took = Vec::new();
    let mut disturb = Some(disturb);
    for round in 0..rounds {
        if round == rounds / 4
            && let Some(disturb) = disturb.take()
        {
            disturb();
        }
        let text = format!("question {}", round % 5);
        let body = chat(&text);
        let started = Instant::now();
        let seen = ask(cache, &body, || server.answer(&body)).await;
        took.push(started.elapsed());
        assert_eq!(seen.status, 200);
        assert!(seen.text().contains(":0 "), "{}", seen.body);
    }
    took
}

#[tokio::test]
async fn a_redis_that_is_killed_and_comes_back_fails_no_request() {
    let mut redis = RedisServer::start().unwrap();
    let (cache, server) = (cache_of(&redis, 0), Server::default());
    until_it_works(&cache, &server, "hi").await;
    load(&cache, &server, || redis.kill(), 200).await;
    redis.restart().unwrap();
    until_it_works(&cache, &server, "after").await;
}

#[tokio::test]
async fn a_redis_that_stands_still_costs_a_few_requests_the_budget_and_then_nobody() {
    let redis = RedisServer::start().unwrap();
    let (cache, server) = (cache_of(&redis, 0), Server::default());
    until_it_works(&cache, &server, "hi").await;
    let mut before = [0; 4];
    let stop = || {
        redis.pause().unwrap();
        before = cache.counts().store[0];
    };
    load(&cache, &server, stop, 200).await;
    let after = cache.counts().store[0];
    let (timed_out, skipped) = (after[2] - before[2], after[3] - before[3]);
    // How often anybody waited is bounded by the breaker, and how long by the budget.
    assert!((1..=6).contains(&timed_out), "{after:?}");
    assert!(skipped > 100, "{after:?}");
    assert!(GET_BUDGET <= Duration::from_millis(20));
    redis.resume().unwrap();
    until_it_works(&cache, &server, "after").await;
}

#[tokio::test]
async fn without_redis_requests_are_answered_as_if_there_were_no_cache() {
    let folder = TempDir::new().unwrap();
    let stores = Stores {
        memory_bytes: 0,
        redis: Some(format!("unix://{}", folder.path().join("nobody").display())),
    };
    let cache = Arc::new(Cache::new(&Secret::from_text("s"), &stores).unwrap());
    let server = Server::default();
    load(&cache, &server, || {}, 20).await;
    assert!(cache.counts().store[0][3] > 0);
}
