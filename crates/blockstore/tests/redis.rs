//! Blocks in a real `redis-server`: shared, bounded, and of no harm when it is away.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking, and clippy does not take helpers for tests"
)]

use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::store::{BlockStore, StoreKey, Tier};
use forespeak_blockstore::Redis;
use testkit::redis_server::RedisServer;

fn block(n: u8, bytes: usize) -> (StoreKey, Bytes) {
    (
        StoreKey::from_bytes([n; StoreKey::BYTES]),
        vec![n; bytes].into(),
    )
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

#[test]
fn a_run_of_blocks_is_shared_and_read_in_order() {
    let server = RedisServer::start().unwrap();
    let one = Redis::new(&server.address(), 1 << 30).unwrap();
    let two = Redis::new(&server.address(), 1 << 30).unwrap();
    assert_eq!(one.tier(), Tier::Shared);
    let blocks: Vec<_> = (0..100).map(|n| block(n, 1000)).collect();
    let keys: Vec<StoreKey> = blocks.iter().map(|(key, _)| *key).collect();
    assert_eq!(two.leading(&keys, soon()), 0);
    assert_eq!(one.write(blocks.clone()).kept, keys);
    assert!(two.write(blocks.clone()).kept.is_empty());
    assert_eq!(two.leading(&keys, soon()), 100);
    let contents: Vec<Bytes> = blocks.into_iter().map(|(_, sealed)| sealed).collect();
    assert_eq!(two.read(&keys, soon()), contents);
    two.discard(&keys[40]);
    assert_eq!(one.leading(&keys, soon()), 40);
    assert_eq!(one.read(&keys, soon()), contents[..40]);
    assert!(one.read(&keys, Instant::now()).is_empty());
}

#[test]
fn an_instance_leaves_no_more_than_its_bound() {
    let server = RedisServer::start().unwrap();
    let redis = Redis::new(&server.address(), 2_500).unwrap();
    let all: Vec<StoreKey> = (0..6).map(|n| block(n, 0).0).collect();
    for n in 0..5 {
        redis.write(vec![block(n, 1000)]);
    }
    let there: usize = all.iter().map(|key| redis.leading(&[*key], soon())).sum();
    assert_eq!(there, 2);
    let written = redis.write(vec![block(5, 1000)]);
    assert_eq!(written.dropped, [(all[3], None)]);
}

#[test]
fn without_redis_there_is_nothing_and_nobody_waits_long() {
    let mut server = RedisServer::start().unwrap();
    let redis = Redis::new(&server.address(), 1 << 30).unwrap();
    redis.write(vec![block(1, 10)]);
    let key = [block(1, 0).0];
    assert_eq!(redis.leading(&key, soon()), 1);
    server.kill();
    let began = Instant::now();
    for _ in 0..100 {
        let deadline = Instant::now() + Duration::from_millis(50);
        assert!(redis.read(&key, deadline).is_empty());
    }
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    server.restart().unwrap();
    let began = Instant::now();
    while redis.write(vec![block(1, 10)]).kept.is_empty() {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "it never came back"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
