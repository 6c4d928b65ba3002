//! Two gateways in front of the same workers, with a real Redis between them.

use std::time::{Duration, Instant};

use forespeak_gateway::tenants::{KeyHash, Limits, SaltSecret, TenantSpec, Tenants};
use routing::Policy;
use serde_json::{Value, json};
use testkit::redis_server::RedisServer;

use crate::support::client::{post, post_with};
use crate::support::worker::{Deed, FakeWorker, speech, whole};
use crate::support::{CHAT, MODEL, Running, Setup, eventually};

/// Long enough that what is known can only have been told.
const NEVER: Duration = Duration::from_secs(3600);

fn chat(text: &str) -> Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": text}]})
}

fn sharing(redis: &RedisServer) -> Setup {
    Setup {
        shared: Some(redis.address()),
        ..Setup::default()
    }
}

/// Waits until a gateway hears so many others; how long that took.
async fn until_it_hears(running: &Running, others: f64) -> Duration {
    let start = Instant::now();
    while running.counter("forespeak_replicas_others").await != others {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "never {others} others"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    start.elapsed()
}

fn weight(running: &Running, worker: &str) -> f64 {
    let report = running.pool.report();
    let found = report
        .workers
        .iter()
        .find(|report| report.url.starts_with(worker));
    found.unwrap().weight
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_that_one_has_seen_is_known_to_the_other_within_a_second() {
    let redis = RedisServer::start().unwrap();
    let (dying, other) = (
        FakeWorker::start(whole("a")).await,
        FakeWorker::start(whole("b")).await,
    );
    let one = sharing(&redis).start(&[&dying, &other]).await;
    let blind = Setup {
        probe_every: NEVER,
        ..sharing(&redis)
    };
    let two = blind.start(&[&dying, &other]).await;
    until_it_hears(&two, 1.0).await;
    let url = dying.url();
    drop(dying);
    eventually("one has seen it", || weight(&one, &url) == 0.0).await;
    let seen = Instant::now();
    eventually("the other knows", || weight(&two, &url) == 0.0).await;
    let took = seen.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    for _ in 0..4 {
        assert_eq!(post(two.address, CHAT, &chat("hi")).await.status, 200);
    }
    assert_eq!(other.seen().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sees_a_worker_well_does_not_believe_that_it_is_ill() {
    let redis = RedisServer::start().unwrap();
    // Where one asks how it is, it answers 500.
    let worker = FakeWorker::start(Deed::Answer(500, "", String::new())).await;
    let cut_off = Setup {
        health_path: Some("/sick"),
        ..sharing(&redis)
    };
    let one = cut_off.start(&[&worker]).await;
    let two = Setup {
        probe_every: NEVER,
        ..sharing(&redis)
    };
    let two = two.start(&[&worker]).await;
    eventually("one finds it ill", || one.healthy() == 0).await;
    until_it_hears(&two, 1.0).await;
    let probes = || {
        let report = two.pool.report();
        report.workers[0].scrapes.probes
    };
    eventually("two has looked again", || probes() >= 2).await;
    eventually("and does not doubt it", || {
        let worker = &two.pool.report().workers[0];
        !worker.doubted && worker.weight > 0.0
    })
    .await;
}

fn limited(requests_per_minute: u32) -> Tenants {
    let tenant = TenantSpec {
        name: "t".to_owned(),
        keys: vec![KeyHash::of("k")],
        limits: Limits {
            requests_per_minute: Some(requests_per_minute),
            ..Limits::default()
        },
        ..TenantSpec::default()
    };
    let secret = SaltSecret::from_text("test");
    Tenants::new(vec![tenant], &secret, &Tenants::default()).unwrap()
}

async fn status(running: &Running) -> u16 {
    let body = chat("hi").to_string();
    let key = "authorization: Bearer k\r\n";
    post_with(running.address, CHAT, key, body.as_bytes())
        .await
        .status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_limit_holds_over_both() {
    const LIMIT: f64 = 120.0;
    let redis = RedisServer::start().unwrap();
    let worker = FakeWorker::start(whole("a")).await;
    let gateway = || Setup {
        tenants: limited(LIMIT as u32),
        ..sharing(&redis)
    };
    let (one, two) = (
        gateway().start(&[&worker]).await,
        gateway().start(&[&worker]).await,
    );
    until_it_hears(&one, 1.0).await;
    until_it_hears(&two, 1.0).await;
    let start = Instant::now();
    let (mut through, mut refused) = (0.0, 0);
    while start.elapsed() < Duration::from_secs(4) {
        for gateway in [&one, &two] {
            match status(gateway).await {
                200 => through += 1.0,
                429 => refused += 1,
                other => panic!("{other}"),
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let allowed = LIMIT * (1.0 + start.elapsed().as_secs_f64() / 60.0);
    // One request for the other gateway; and a twentieth, for turns that a busy machine makes late.
    assert!(
        through <= allowed + 1.0 + LIMIT / 20.0,
        "{through} of {allowed}"
    );
    assert!(through >= 0.9 * allowed, "{through} of {allowed}");
    assert!(refused > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_each_goes_on_alone_and_finds_the_other_again() {
    let mut redis = RedisServer::start().unwrap();
    let worker = FakeWorker::start(whole("a")).await;
    let gateway = || Setup {
        tenants: limited(10_000),
        ..sharing(&redis)
    };
    let (one, two) = (
        gateway().start(&[&worker]).await,
        gateway().start(&[&worker]).await,
    );
    let both = [&one, &two];
    for running in both {
        until_it_hears(running, 1.0).await;
    }
    for is_killed in [true, false] {
        if is_killed {
            redis.kill();
        } else {
            redis.pause().unwrap();
        }
        for running in both {
            assert_eq!(status(running).await, 200);
            until_it_hears(running, 0.0).await;
            assert_eq!(status(running).await, 200);
            assert_eq!(running.counter("forespeak_replicas_connected").await, 0.0);
        }
        if is_killed {
            redis.restart().unwrap();
        } else {
            redis.resume().unwrap();
        }
        for running in both {
            until_it_hears(running, 1.0).await;
            assert_eq!(status(running).await, 200);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_goes_where_the_other_gateway_sent_it() {
    let redis = RedisServer::start().unwrap();
    let words = || speech(&["a"]);
    let mut workers = Vec::new();
    for _ in 0..4 {
        workers.push(FakeWorker::start(words()).await);
    }
    let all: Vec<&FakeWorker> = workers.iter().collect();
    let gateway = || Setup {
        policy: Policy::Prefix,
        ..sharing(&redis)
    };
    let (one, two) = (gateway().start(&all).await, gateway().start(&all).await);
    until_it_hears(&one, 1.0).await;
    until_it_hears(&two, 1.0).await;
    let prompts: Vec<String> = (0..12)
        .map(|number| format!("document {number}: {}", "so it is said. ".repeat(100)))
        .collect();
    let went_to = || -> Vec<usize> { all.iter().map(|worker| worker.seen().len()).collect() };
    let mut places = Vec::new();
    for prompt in &prompts {
        let before = went_to();
        assert_eq!(post(one.address, CHAT, &chat(prompt)).await.status, 200);
        let after = went_to();
        places.push((0..4).find(|at| after[*at] > before[*at]).unwrap());
    }
    let start = Instant::now();
    while two.counter("forespeak_replicas_prefixes_heard_total").await < 12.0 {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "the prompts were not told"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for (prompt, place) in prompts.iter().zip(places) {
        let before = all[place].seen().len();
        assert_eq!(post(two.address, CHAT, &chat(prompt)).await.status, 200);
        assert_eq!(all[place].seen().len(), before + 1, "{prompt:.20}");
    }
}
