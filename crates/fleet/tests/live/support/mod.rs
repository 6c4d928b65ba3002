//! Workers and publishers for the tests, on free loopback ports.

mod publisher;
mod web;

pub(crate) use publisher::{Publisher, batch, old_batch};
pub(crate) use web::{Behaviour, Web};

use std::time::Duration;

use forespeak_fleet::breaker::BreakerConfig;
use forespeak_fleet::health::HealthConfig;
use forespeak_fleet::kv_events::EventsConfig;
use forespeak_fleet::registry::RegistryConfig;
use forespeak_fleet::scrape::ScrapeConfig;
use forespeak_fleet::{Backoff, FleetConfig, WorkerSpec, WorkerUrl};

/// Far longer than anything takes, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A fleet in a hurry.
pub(crate) fn quick_config(workers: Vec<WorkerSpec>) -> FleetConfig {
    let millis = Duration::from_millis;
    FleetConfig {
        registry: RegistryConfig {
            health: HealthConfig {
                slow_start: PATIENCE,
                stale_after: PATIENCE,
                ..HealthConfig::default()
            },
            breaker: BreakerConfig::default(),
            drain_at_most: PATIENCE,
        },
        scrape: ScrapeConfig {
            scrape_every: millis(20),
            scrape_timeout: millis(300),
            scrape_pause_at_most: millis(200),
            probe_every: millis(20),
            connect_timeout: millis(500),
            probe_timeout: millis(300),
        },
        events: EventsConfig {
            connect_timeout: millis(2000),
            replay_timeout: millis(2000),
            audit_after: millis(200),
            reconnect: Backoff {
                first: millis(10),
                longest: millis(50),
            },
        },
        workers,
        ..FleetConfig::default()
    }
}

pub(crate) fn spec(port: u16) -> WorkerSpec {
    WorkerSpec::new(WorkerUrl::parse(&format!("http://127.0.0.1:{port}")).unwrap())
}

/// Waits until something holds.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = tokio::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A port nobody listens on.
pub(crate) async fn free_port() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port()
}
