//! Pools in front of mock workers. After the workers were seen once they are not asked again, so that what
//! a pool knows is what it was told and what it sent.

mod exact;
mod ranks;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fleet::health::HealthConfig;
use fleet::registry::RegistryConfig;
use fleet::scrape::ScrapeConfig;
use fleet::{Fault, FleetConfig, WorkerSpec, WorkerUrl};
use http::StatusCode;
use routing::admission::QueueLimits;
use routing::{Policy, Priority};
use testkit::mock_vllm::{MockConfig, MockVllm};
use tokio::time::{Instant, sleep, timeout};

use super::*;

const KV_TOKENS: u64 = 4096;
const LONG: Duration = Duration::from_secs(24 * 3600);
const SOON: Duration = Duration::from_secs(20);

/// Mocks and a pool in front of them that has seen each of them once.
struct Stage {
    pool: Arc<Pool>,
    _mocks: Vec<MockVllm>,
}

async fn stage(workers: usize, change: impl FnOnce(&mut PoolConfig)) -> Stage {
    let mut mocks = Vec::new();
    for _ in 0..workers {
        let mut config = MockConfig::default();
        config.worker.kv_tokens = KV_TOKENS;
        config.max_model_len = KV_TOKENS;
        mocks.push(MockVllm::start(config).await.unwrap());
    }
    let spec = |mock: &MockVllm| WorkerSpec::new(WorkerUrl::parse(&mock.url()).unwrap());
    let fleet = FleetConfig {
        workers: mocks.iter().map(spec).collect(),
        registry: RegistryConfig {
            health: HealthConfig {
                stale_after: LONG,
                slow_start: Duration::ZERO,
                ..HealthConfig::default()
            },
            ..RegistryConfig::default()
        },
        scrape: ScrapeConfig {
            scrape_every: LONG,
            probe_every: Duration::from_millis(20),
            ..ScrapeConfig::default()
        },
        ..FleetConfig::default()
    };
    let mut config = PoolConfig::new("default", fleet);
    change(&mut config);
    let pool = Arc::new(Pool::start(config, None).unwrap());
    let seen = |worker: &WorkerReport| {
        worker.condition == "healthy" && worker.kv_capacity_tokens == Some(KV_TOKENS)
    };
    let ready = timeout(SOON, async {
        while !(pool.report().workers.len() == workers && pool.report().workers.iter().all(seen)) {
            sleep(Duration::from_millis(5)).await;
        }
    });
    ready.await.expect("the mocks should be seen");
    Stage {
        pool,
        _mocks: mocks,
    }
}

/// An ask that pressure does not turn away.
fn urgent(tenant: &str, tokens: usize) -> Ask {
    Ask {
        priority: Priority::High,
        ..ask(tenant, tokens)
    }
}

/// An ask of so many tokens, all new, whose answer has one.
fn ask(tenant: &str, tokens: usize) -> Ask {
    static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let text = format!("{number:08}").repeat(tokens / 2);
    Ask {
        tenant: Arc::from(tenant),
        salt: Arc::from(tenant),
        lora: None,
        prompt: PromptSpans::Completion {
            prompt: 0..text.len(),
            add_special_tokens: true,
        },
        body: Bytes::from(text),
        max_tokens: Some(1),
        answers: 1,
        priority: Priority::Normal,
        session: None,
        deadline: Instant::now() + LONG,
    }
}

fn ledger(pool: &Pool) -> (u64, u32, usize) {
    let report = pool.report();
    let tokens = report
        .workers
        .iter()
        .map(|worker| worker.ledger_tokens)
        .sum();
    let in_flight = report.workers.iter().map(|worker| worker.in_flight).sum();
    (tokens, in_flight, report.waiting_requests)
}

async fn until(mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(SOON, waiting)
        .await
        .expect("it should have come to pass");
}

#[tokio::test]
async fn a_placement_gives_everything_back_however_it_ends() {
    let Stage { pool, .. } = &stage(2, |_| {}).await;
    let outcomes = [
        None,
        Some(Outcome::Finished(Reported::default())),
        Some(Outcome::WorkerFault(Fault::TimedOut)),
        Some(Outcome::ClientFault(StatusCode::BAD_REQUEST)),
        Some(Outcome::ClientLeft),
        Some(Outcome::Deadline),
        Some(Outcome::NotSent),
    ];
    for outcome in outcomes {
        let mut placement = pool.place(&ask("t", 100), &[]).await.unwrap();
        assert_eq!(ledger(pool), (101, 1, 0));
        placement.started();
        placement.progressed(5_000);
        match outcome {
            Some(outcome) => placement.settle(outcome),
            None => drop(placement),
        }
        assert_eq!(ledger(pool), (0, 0, 0), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_comings_and_goings_drain_the_books_to_zero() {
    let stage = stage(2, |config| {
        config.queue = QueueLimits {
            requests: 64,
            per_tenant: 24,
        };
        config.patience.normal = Duration::from_millis(200);
    })
    .await;
    let tasks = (0_u64..48).map(|task| {
        let pool = Arc::clone(&stage.pool);
        tokio::spawn(async move {
            let mut state = task * 0x9e37_79b9 + 1;
            let mut dice = move |sides: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % sides
            };
            for _ in 0..40 {
                let mut ask = ask(["a", "b", "c"][dice(3) as usize], 200 + dice(1500) as usize);
                ask.priority = [Priority::Low, Priority::Normal, Priority::High][dice(3) as usize];
                ask.deadline = Instant::now() + Duration::from_millis(dice(300));
                // Some lose patience themselves, which drops the future where it stands.
                let patience = Duration::from_millis(1 + dice(40));
                let Ok(Ok(mut placement)) = timeout(patience, pool.place(&ask, &[])).await else {
                    continue;
                };
                sleep(Duration::from_micros(dice(2_000))).await;
                match dice(4) {
                    0 => drop(placement),
                    1 => placement.settle(Outcome::ClientLeft),
                    _ => {
                        placement.answered(StatusCode::OK, false);
                        placement.started();
                        placement.settle(Outcome::Finished(Reported::default()));
                    }
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(ledger(&stage.pool), (0, 0, 0));
}

#[tokio::test]
async fn nobody_waits_past_the_deadline() {
    let stage = stage(1, |config| config.patience.high = Duration::from_secs(7)).await;
    let full = stage.pool.place(&ask("t", 4_000), &[]).await.unwrap();
    tokio::time::pause();
    let waits = async |deadline: Duration| {
        let began = Instant::now();
        let ask = Ask {
            priority: Priority::High,
            deadline: began + deadline,
            ..ask("t", 1_000)
        };
        let refusal = stage.pool.place(&ask, &[]).await.unwrap_err();
        assert_eq!(refusal.cause, RefusalCause::TooLong);
        assert!(refusal.retry_after.is_some());
        began.elapsed()
    };
    // The time is virtual, hence exact to the tick of a timer.
    let tick = Duration::from_millis(2);
    let own = waits(Duration::from_secs(3)).await;
    assert!(own >= Duration::from_secs(3) && own <= Duration::from_secs(3) + tick);
    let patience = waits(LONG).await;
    assert!(patience >= Duration::from_secs(7) && patience <= Duration::from_secs(7) + tick);
    drop(full);
    assert_eq!(ledger(&stage.pool), (0, 0, 0));
}

#[tokio::test]
async fn who_leaves_the_line_is_forgotten_and_the_next_gets_the_room() {
    let stage = stage(1, |_| {}).await;
    let full = stage.pool.place(&ask("t", 4_000), &[]).await.unwrap();
    let wait = || {
        let pool = Arc::clone(&stage.pool);
        tokio::spawn(async move { pool.place(&urgent("t", 3_000), &[]).await })
    };
    let gone = wait();
    until(|| stage.pool.report().waiting_requests == 1).await;
    let next = wait();
    until(|| stage.pool.report().waiting_requests == 2).await;
    gone.abort();
    until(|| stage.pool.report().waiting_requests == 1).await;
    drop(full);
    let placement = next.await.unwrap().unwrap();
    assert!(placement.chosen().waited > Duration::ZERO);
    assert_eq!(ledger(&stage.pool), (3_001, 1, 0));
    drop(placement);
    assert_eq!(ledger(&stage.pool), (0, 0, 0));
}

#[tokio::test]
async fn no_tenant_starves_behind_another() {
    let stage = stage(1, |config| config.patience.high = LONG).await;
    let full = stage.pool.place(&ask("modest", 4_000), &[]).await.unwrap();
    let (told, mut tell) = tokio::sync::mpsc::unbounded_channel();
    for (tenant, requests) in [("greedy", 30), ("modest", 3)] {
        for _ in 0..requests {
            let (pool, told) = (Arc::clone(&stage.pool), told.clone());
            tokio::spawn(async move {
                // Each takes the whole worker, so that they go one by one.
                let placement = pool.place(&urgent(tenant, 4_000), &[]).await.unwrap();
                told.send(tenant).unwrap();
                drop(placement);
            });
        }
        let waiting = stage.pool.report().waiting_requests + requests;
        until(|| stage.pool.report().waiting_requests == waiting).await;
    }
    drop((full, told));
    let mut order = Vec::new();
    while let Some(tenant) = tell.recv().await {
        order.push(tenant);
    }
    assert_eq!(order.len(), 33);
    let last_modest = order
        .iter()
        .rposition(|tenant| *tenant == "modest")
        .unwrap();
    assert!(last_modest <= 6, "{order:?}");
    assert_eq!(ledger(&stage.pool), (0, 0, 0));
}

#[tokio::test]
async fn pressure_turns_low_priority_away_first_and_says_when_to_come_back() {
    let stage = stage(1, |_| {}).await;
    let held = stage.pool.place(&ask("t", 3_600), &[]).await.unwrap();
    let with = |priority| Ask {
        priority,
        ..ask("t", 100)
    };
    let low = stage
        .pool
        .place(&with(Priority::Low), &[])
        .await
        .unwrap_err();
    assert_eq!(low.cause, RefusalCause::Pressure);
    assert!(low.retry_after.is_some());
    drop(
        stage
            .pool
            .place(&with(Priority::Normal), &[])
            .await
            .unwrap(),
    );
    drop(held);
    drop(stage.pool.place(&with(Priority::Low), &[]).await.unwrap());
}

#[tokio::test]
async fn what_no_worker_can_ever_hold_is_refused_for_good() {
    let stage = stage(1, |_| {}).await;
    let refusal = stage.pool.place(&ask("t", 5_000), &[]).await.unwrap_err();
    assert_eq!(
        (refusal.cause, refusal.retry_after),
        (RefusalCause::TooLarge, None)
    );
    // A prompt that fits goes, although its answer could outgrow the cache.
    let most = Ask {
        max_tokens: None,
        ..ask("t", 4_000)
    };
    drop(stage.pool.place(&most, &[]).await.unwrap());
}

#[tokio::test]
async fn the_next_turn_of_a_chat_goes_where_the_last_one_went() {
    let stage = stage(4, |_| {}).await;
    let first = ask("t", 800);
    let home = stage.pool.place(&first, &[]).await.unwrap();
    assert_eq!(home.predicted_cached(), 0);
    let worker = home.worker().id();
    home.settle(Outcome::Finished(Reported::default()));
    let longer = Bytes::from([&first.body[..], &b"and so on ".repeat(30)].concat());
    let next = Ask {
        prompt: PromptSpans::Completion {
            prompt: 0..longer.len(),
            add_special_tokens: true,
        },
        body: longer,
        ..first
    };
    let placement = stage.pool.place(&next, &[]).await.unwrap();
    assert_eq!(placement.worker().id(), worker);
    assert_eq!(placement.predicted_cached(), 800);
    let header = placement.chosen().header_value();
    assert!(
        header.starts_with("fit 127.0.0.1:") && header.contains("cached=800/"),
        "{header}"
    );
    drop(placement);
    let foreign = Ask {
        salt: Arc::from("other"),
        ..next.clone()
    };
    let explained = stage.pool.explain(&foreign).await;
    let decision = explained.decision.unwrap();
    assert!(
        decision
            .candidates
            .iter()
            .all(|one| one.terms.get("cached_tokens") == Some(0.0))
    );
    assert_eq!(stage.pool.decisions().len(), 2);
}

#[tokio::test]
async fn a_retry_goes_to_another_worker_or_nowhere() {
    let stage = stage(2, |_| {}).await;
    let ask = ask("t", 100);
    let first = stage.pool.place(&ask, &[]).await.unwrap().worker().id();
    let second = stage
        .pool
        .place(&ask, &[first])
        .await
        .unwrap()
        .worker()
        .id();
    assert_ne!(first, second);
    let refusal = stage.pool.place(&ask, &[first, second]).await.unwrap_err();
    assert_eq!(refusal.cause, RefusalCause::NoWorkers);
}

#[tokio::test]
async fn every_policy_places_and_a_4xx_opens_no_breaker() {
    for policy in Policy::ALL {
        let stage = stage(2, |config| config.policy = policy).await;
        for _ in 0..40 {
            let placement = stage.pool.place(&ask("t", 50), &[]).await.unwrap();
            assert_eq!(placement.chosen().decision.policy, policy);
            placement.settle(Outcome::ClientFault(StatusCode::BAD_REQUEST));
        }
        let report = stage.pool.report();
        assert!(
            report
                .workers
                .iter()
                .all(|worker| worker.breaker == "closed")
        );
    }
}

#[tokio::test]
async fn faults_open_a_breaker_and_the_others_take_over() {
    let stage = stage(2, |config| config.policy = Policy::RoundRobin).await;
    let victim = stage.pool.snapshot().workers()[0].id();
    for _ in 0..20 {
        let placement = stage.pool.place(&ask("t", 50), &[]).await.unwrap();
        let outcome = if placement.worker().id() == victim {
            Outcome::WorkerFault(Fault::ServerError)
        } else {
            Outcome::Finished(Reported::default())
        };
        placement.settle(outcome);
    }
    for _ in 0..4 {
        let placement = stage.pool.place(&ask("t", 50), &[]).await.unwrap();
        assert_ne!(placement.worker().id(), victim);
    }
}

#[tokio::test]
async fn reports_of_less_than_predicted_lower_the_trust_in_a_worker() {
    let stage = stage(1, |_| {}).await;
    let ask = ask("t", 2_000);
    for _ in 0..12 {
        let placement = stage.pool.place(&ask, &[]).await.unwrap();
        placement.settle(Outcome::Finished(Reported {
            prompt_tokens: Some(2_000),
            completion_tokens: Some(1),
            cached_tokens: Some(0),
        }));
    }
    let report = stage.pool.report();
    assert!(
        report.workers[0].cache_trust < 0.5,
        "{}",
        report.workers[0].cache_trust
    );
}

#[tokio::test]
async fn the_metrics_page_shows_pools_side_by_side() {
    let metrics = PlacementMetrics::default();
    let shared = metrics.clone();
    let one = stage(1, |config| config.metrics = shared).await;
    let shared = metrics.clone();
    let _two = stage(1, |config| {
        config.metrics = shared;
        config.name = "second".to_owned();
        for worker in &mut config.fleet.workers {
            worker.pool = "second".to_owned();
        }
    })
    .await;
    drop(one.pool.place(&ask("t", 50), &[]).await.unwrap());
    let mut page = String::new();
    metrics.encode(&mut page);
    for line in [
        "forespeak_placements_total{pool=\"default\",reason=\"soonest\"} 1",
        "forespeak_prompts_read_total{pool=\"default\",how=\"text\"} 1",
        "forespeak_queue_requests{pool=\"second\"} 0.0",
        "forespeak_ledger_tokens{pool=\"default\",worker=\"127.0.0.1:",
        ",state=\"closed\"} 1",
        ",condition=\"healthy\"} 1",
        "forespeak_routing_seconds_count{pool=\"default\",stage=\"desk\"} 1",
    ] {
        assert!(page.contains(line), "{line} is missing in\n{page}");
    }
    let types: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("# TYPE"))
        .collect();
    let mut once = types.clone();
    once.dedup();
    assert_eq!(types, once);
}
