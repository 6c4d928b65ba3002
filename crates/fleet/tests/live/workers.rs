//! The fleet on real sockets: who is dead, who is full, who comes and who goes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{Behaviour, PATIENCE, Web, eventually, free_port, quick_config, spec};
use forespeak_fleet::health::{Condition, DownReason, DrainReason, PanicConfig};
use forespeak_fleet::scrape::MAX_PAGE_BYTES;
use forespeak_fleet::{DEFAULT_POOL, DnsSource, Fault, Fleet, KvChange, Worker, WorkerUrl};
use routing::{LedgerView, Speeds};

const PAGE: &str = include_str!("../fixtures/vllm_0_32.prom");

fn worker(fleet: &Fleet, port: u16) -> Arc<Worker> {
    let snapshot = fleet.snapshot();
    let found = snapshot
        .workers()
        .iter()
        .find(|worker| worker.spec().url.port() == Some(port));
    Arc::clone(found.expect("the worker should be in the fleet"))
}

fn is_healthy(worker: &Worker) -> bool {
    worker.condition(Instant::now()).is_healthy()
}

#[tokio::test]
async fn a_worker_is_found_alive_and_its_metrics_are_read() {
    let web = Web::start(PAGE).await;
    let (fleet, _updates) = Fleet::start(quick_config(vec![spec(web.port)])).unwrap();
    let worker = worker(&fleet, web.port);
    assert_eq!(worker.condition(Instant::now()), Condition::Starting);
    eventually("it is healthy", || is_healthy(&worker)).await;
    eventually("rates are known", || {
        worker.sighting().is_some_and(|seen| seen.rates.is_some())
    })
    .await;
    let seen = worker.sighting().unwrap();
    assert_eq!(seen.observation.running, Some(7));
    assert_eq!(seen.observation.cache.capacity_tokens, Some(32_768));
    let view = worker.view(
        1.0,
        LedgerView::default(),
        1.0,
        Speeds::default(),
        Instant::now(),
    );
    assert_eq!((view.running, view.waiting), (7, 2));
    assert_eq!(view.kv_free_tokens(), 24_576);
    fleet.stop().await;
}

/// Elsewhere one dead backend made the loop over all of them wait.
#[tokio::test]
async fn one_dead_or_silent_worker_holds_nobody_up() {
    let silent = Web::start(PAGE).await;
    silent.behave("/health", Behaviour::Hang);
    silent.behave("/metrics", Behaviour::Hang);
    let fine = Web::start(PAGE).await;
    let dead = free_port().await;
    let specs = vec![spec(silent.port), spec(dead), spec(fine.port)];
    let mut config = quick_config(specs);
    config.scrape.scrape_timeout = PATIENCE;
    config.scrape.probe_timeout = PATIENCE;
    let (fleet, _updates) = Fleet::start(config).unwrap();
    eventually("the sound worker is scraped again and again", || {
        fine.requests() >= 20
    })
    .await;
    assert_eq!(silent.requests(), 1, "one question at a time");
    let snapshot = fleet.snapshot();
    let weights: Vec<bool> = snapshot
        .standings(DEFAULT_POOL, PanicConfig::default(), &[], Instant::now())
        .iter()
        .map(|(_, standing)| standing.weight > 0.0)
        .collect();
    assert_eq!(weights, [false, false, true]);
}

/// Elsewhere polling `/metrics` without waiting for the answer hung the engine.
#[tokio::test]
async fn a_slow_metrics_page_is_asked_for_once_at_a_time_and_ever_more_slowly() {
    let web = Web::start(PAGE).await;
    web.behave("/metrics", Behaviour::Hang);
    let mut config = quick_config(vec![spec(web.port)]);
    config.scrape.scrape_timeout = Duration::from_millis(20);
    config.scrape.scrape_pause_at_most = PATIENCE;
    let (fleet, _updates) = Fleet::start(config).unwrap();
    let worker = worker(&fleet, web.port);
    let begun = Instant::now();
    eventually("it fails for a while", || {
        worker.scrapes.read().scrapes_failed >= 5
    })
    .await;
    // Pauses of 40, 80, 160 and 320 ms lie between five failures, less a tenth.
    assert!(begun.elapsed() >= Duration::from_millis(540));
    assert_eq!(web.most_open(), 1);
    assert!(is_healthy(&worker), "it still answers probes");
}

#[tokio::test]
async fn a_killed_worker_is_out_after_two_probes_and_back_when_it_returns() {
    let web = Web::start(PAGE).await;
    let port = web.port;
    let (fleet, _updates) = Fleet::start(quick_config(vec![spec(port)])).unwrap();
    let worker = worker(&fleet, port);
    eventually("it is healthy", || is_healthy(&worker)).await;
    drop(web);
    let failed_before = worker.scrapes.read().probes_failed;
    eventually("it is out", || {
        worker.condition(Instant::now()) == Condition::Down(DownReason::Unreachable)
    })
    .await;
    // The killed connection of a probe under way may count beside the two refusals.
    let failed = worker.scrapes.read().probes_failed - failed_before;
    assert!(failed <= 4, "{failed} probes");

    let _reborn = Web::start_on(port, PAGE).await;
    eventually("it is back", || is_healthy(&worker)).await;
    let Condition::Healthy { weight } = worker.condition(Instant::now()) else {
        panic!("it was healthy a moment ago");
    };
    assert!(weight < 0.5, "it warms up: {weight}");
}

#[tokio::test]
async fn requests_that_meet_refusals_put_a_worker_out_before_the_next_probe() {
    let web = Web::start(PAGE).await;
    let mut config = quick_config(vec![spec(web.port)]);
    config.scrape.probe_every = PATIENCE;
    let (fleet, _updates) = Fleet::start(config).unwrap();
    let worker = worker(&fleet, web.port);
    eventually("it is healthy", || is_healthy(&worker)).await;
    drop(web);
    let now = Instant::now();
    worker.begin(now).unwrap().failed(Fault::Unreachable, now);
    eventually("the probe it asked for confirms it", || {
        !is_healthy(&worker)
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_accepts_and_never_answers_is_out() {
    let web = Web::start(PAGE).await;
    let (fleet, _updates) = Fleet::start(quick_config(vec![spec(web.port)])).unwrap();
    let worker = worker(&fleet, web.port);
    eventually("it is healthy", || is_healthy(&worker)).await;
    web.behave("/health", Behaviour::Hang);
    eventually("it is out", || {
        worker.condition(Instant::now()) == Condition::Down(DownReason::Silent)
    })
    .await;
}

#[tokio::test]
async fn a_worker_whose_engine_is_gone_says_so_and_is_out() {
    let web = Web::start(PAGE).await;
    let (fleet, _updates) = Fleet::start(quick_config(vec![spec(web.port)])).unwrap();
    let worker = worker(&fleet, web.port);
    eventually("it is healthy", || is_healthy(&worker)).await;
    web.behave("/health", Behaviour::Answer(503, "", "engine dead".into()));
    eventually("it is out, though it answers requests with errors", || {
        let now = Instant::now();
        worker.begin_anyway(now).answered(500, false, now);
        worker.condition(Instant::now()) == Condition::Down(DownReason::Unready)
    })
    .await;
}

#[tokio::test]
async fn garbage_metrics_are_refused_and_the_worker_goes_on() {
    let web = Web::start("").await;
    let (fleet, _updates) = Fleet::start(quick_config(vec![spec(web.port)])).unwrap();
    let worker = worker(&fleet, web.port);
    for garbage in [
        Behaviour::Answer(200, "", "x".repeat(MAX_PAGE_BYTES + 1)),
        Behaviour::Answer(200, "", "vllm:a 1\n".repeat(200_000)),
        Behaviour::Answer(500, "", PAGE.to_owned()),
        Behaviour::Reset,
    ] {
        web.behave("/metrics", garbage);
        let before = worker.scrapes.read();
        eventually("it fails twice", || {
            worker.scrapes.read().scrapes_failed >= before.scrapes_failed + 2
        })
        .await;
        assert!(worker.sighting().is_none());
    }
    eventually("it is healthy", || is_healthy(&worker)).await;
    web.behave("/metrics", Behaviour::Answer(200, "", PAGE.to_owned()));
    eventually("a good page is read again", || worker.sighting().is_some()).await;
}

#[tokio::test]
async fn a_worker_without_metrics_works_all_the_same() {
    let web = Web::start(PAGE).await;
    web.behave("/metrics", Behaviour::Answer(404, "", String::new()));
    let mut config = quick_config(vec![spec(web.port)]);
    config.registry.health.stale_after = Duration::from_millis(1);
    let (fleet, _updates) = Fleet::start(config).unwrap();
    let worker = worker(&fleet, web.port);
    eventually("it was scraped", || worker.scrapes.read().scrapes >= 2).await;
    eventually("it is healthy", || is_healthy(&worker)).await;
}

#[tokio::test]
async fn metrics_that_stop_coming_make_a_worker_stale() {
    let web = Web::start(PAGE).await;
    let mut config = quick_config(vec![spec(web.port)]);
    config.registry.health.stale_after = Duration::from_millis(500);
    let (fleet, _updates) = Fleet::start(config).unwrap();
    let worker = worker(&fleet, web.port);
    eventually("it is seen", || worker.sighting().is_some()).await;
    web.behave("/metrics", Behaviour::Hang);
    eventually("it is stale", || {
        worker.condition(Instant::now()) == Condition::Stale
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_says_it_is_going_drains_at_once() {
    let web = Web::start(PAGE).await;
    let (fleet, _updates) = Fleet::start(quick_config(vec![spec(web.port)])).unwrap();
    let worker = worker(&fleet, web.port);
    eventually("it is healthy", || is_healthy(&worker)).await;
    web.behave(
        "/health",
        Behaviour::Answer(200, "x-forespeak-draining: spot\r\n", String::new()),
    );
    eventually("it drains", || {
        worker.condition(Instant::now()) == Condition::Draining(DrainReason::Leaving)
    })
    .await;
}

/// Elsewhere three bad requests of one client opened the breakers and took the fleet down.
#[tokio::test]
async fn a_client_with_bad_requests_takes_nobody_down() {
    let web = Web::start(PAGE).await;
    let (fleet, _updates) = Fleet::start(quick_config(vec![spec(web.port)])).unwrap();
    let worker = worker(&fleet, web.port);
    eventually("it is healthy", || is_healthy(&worker)).await;
    for status in [400, 401, 404, 413, 422, 429].repeat(100) {
        let now = Instant::now();
        let mut attempt = worker.begin(now).expect("the breaker should be closed");
        attempt.answered(status, false, now);
    }
    assert!(is_healthy(&worker));
    assert_eq!(worker.in_flight(), 0);
}

#[tokio::test]
async fn an_attempt_counts_until_its_stream_ends_however_it_ends() {
    let web = Web::start(PAGE).await;
    let (fleet, _updates) = Fleet::start(quick_config(vec![spec(web.port)])).unwrap();
    let worker = worker(&fleet, web.port);
    let now = Instant::now();
    let mut answered = worker.begin(now).unwrap();
    let abandoned = worker.begin(now).unwrap();
    let mut failed = worker.begin(now).unwrap();
    answered.answered(200, false, now);
    failed.failed(Fault::Reset, now);
    assert_eq!(worker.in_flight(), 3, "the answer's head is not its end");
    drop((answered, abandoned, failed));
    assert_eq!(worker.in_flight(), 0);
}

#[tokio::test]
async fn a_removed_worker_finishes_what_it_has_and_the_index_is_told() {
    let web = Web::start(PAGE).await;
    let (fleet, mut updates) = Fleet::start(quick_config(vec![spec(web.port)])).unwrap();
    let leaving = worker(&fleet, web.port);
    let attempt = leaving.begin(Instant::now()).unwrap();
    fleet.reload(vec![]).unwrap();
    assert!(leaving.draining().is_some());
    eventually("the keeper has looked", || {
        leaving.scrapes.read().probes >= 5
    })
    .await;
    assert_eq!(fleet.snapshot().workers().len(), 1, "it is not done yet");
    drop(attempt);
    let told = tokio::time::timeout(PATIENCE, updates.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!((told.worker, told.change), (leaving.id(), KvChange::Gone));
    assert!(fleet.snapshot().workers().is_empty());
    let probes = leaving.scrapes.read().probes;
    let next = Web::start(PAGE).await;
    fleet.reload(vec![spec(next.port)]).unwrap();
    let successor = worker(&fleet, next.port);
    eventually("the next one is probed", || {
        successor.scrapes.read().probes >= 5
    })
    .await;
    assert_eq!(
        leaving.scrapes.read().probes,
        probes,
        "nobody asks the old one any more"
    );
}

#[tokio::test]
async fn a_watched_file_is_followed_and_a_bad_one_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("workers.json");
    std::fs::write(&path, r#"["http://127.0.0.1:1"]"#).unwrap();
    let mut config = quick_config(vec![]);
    config.file = Some(path.to_str().unwrap().to_owned());
    let (fleet, _updates) = Fleet::start(config).unwrap();
    let names = |fleet: &Fleet| -> Vec<String> {
        fleet
            .snapshot()
            .workers()
            .iter()
            .map(|worker| worker.name().to_owned())
            .collect()
    };
    eventually("the file is read", || names(&fleet) == ["127.0.0.1:1"]).await;
    std::fs::write(
        &path,
        r#"["http://127.0.0.1:1", {"url": "http://127.0.0.1:2", "nam": "x"}]"#,
    )
    .unwrap();
    let version = fleet.snapshot().version();
    std::fs::write(
        &path,
        r#"["http://127.0.0.1:1", {"url": "http://127.0.0.1:22", "name": "two"}]"#,
    )
    .unwrap();
    eventually("the mended file is read", || {
        names(&fleet) == ["127.0.0.1:1", "two"]
    })
    .await;
    assert_eq!(fleet.snapshot().version(), version + 1);
    std::fs::remove_file(&path).unwrap();
    let two = worker(&fleet, 22);
    let probes = two.scrapes.read().probes;
    eventually("time passes", || two.scrapes.read().probes >= probes + 20).await;
    assert_eq!(names(&fleet), ["127.0.0.1:1", "two"]);
}

#[tokio::test]
async fn a_dns_name_becomes_workers() {
    let web = Web::start(PAGE).await;
    let template = spec(web.port);
    let template = forespeak_fleet::WorkerSpec {
        url: WorkerUrl::parse(&format!("http://localhost:{}", web.port)).unwrap(),
        ..template
    };
    let mut config = quick_config(vec![]);
    config.dns = vec![DnsSource {
        template,
        every: Duration::from_millis(20),
    }];
    let (fleet, _updates) = Fleet::start(config).unwrap();
    eventually("localhost is resolved and alive", || {
        let snapshot = fleet.snapshot();
        snapshot
            .workers()
            .iter()
            .any(|worker| worker.spec().url.host() == "127.0.0.1" && is_healthy(worker))
    })
    .await;
}
