//! A gateway on a free port in front of workers that do as they are told.

#[path = "../../http/support/client.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
pub(crate) mod client;
pub(crate) mod worker;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cache::{Cache, Secret, Stores};
use fleet::scrape::ScrapeConfig;
use fleet::{FleetConfig, WorkerSpec, WorkerUrl};
use forespeak_gateway::placement::{Pool, PoolConfig};
use forespeak_gateway::tenants::{SaltSecret, Tenants};
use forespeak_gateway::{
    Catalog, FleetModel, Gateway, Prices, RelayTimeouts, Server, ServerConfig, StopSwitch,
};
use routing::Policy;
use routing::keys::KeySeed;
use worker::FakeWorker;

pub(crate) const MODEL: &str = "m";
pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const COMPLETIONS: &str = "/v1/completions";

/// What differs between tests.
pub(crate) struct Setup {
    pub(crate) timeouts: RelayTimeouts,
    pub(crate) tenants: Tenants,
    pub(crate) upstream_name: Option<String>,
    pub(crate) forwards_priority: bool,
    pub(crate) api_key: Option<String>,
    /// Whether answers are kept.
    pub(crate) cache: bool,
    /// The Redis in which they are, and nowhere else.
    pub(crate) cache_redis: Option<String>,
    /// The Redis through which it talks to other gateways.
    pub(crate) shared: Option<String>,
    pub(crate) policy: Policy,
    /// How often it looks after its workers itself.
    pub(crate) probe_every: Duration,
    /// Where it asks how they are.
    pub(crate) health_path: Option<&'static str>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            timeouts: RelayTimeouts::default(),
            tenants: Tenants::open(&SaltSecret::from_text("test")),
            upstream_name: None,
            forwards_priority: false,
            api_key: None,
            cache: false,
            cache_redis: None,
            shared: None,
            policy: Policy::RoundRobin,
            probe_every: ScrapeConfig::default().probe_every,
            health_path: None,
        }
    }
}

/// A running gateway; it ends with the test.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) stop: StopSwitch,
    pub(crate) pool: Arc<Pool>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop_now();
    }
}

impl Setup {
    pub(crate) async fn start(self, workers: &[&FakeWorker]) -> Running {
        let specs = workers.iter().map(|worker| {
            let mut spec = WorkerSpec::new(WorkerUrl::parse(&worker.url()).unwrap());
            spec.api_key = self.api_key.as_ref().map(fleet::Secret::new);
            if let Some(path) = self.health_path {
                spec.health_path = path.to_owned();
            }
            spec
        });
        let mut config = PoolConfig::new(
            fleet::DEFAULT_POOL,
            FleetConfig {
                workers: specs.collect(),
                scrape: ScrapeConfig {
                    probe_every: self.probe_every,
                    ..ScrapeConfig::default()
                },
                ..FleetConfig::default()
            },
        );
        config.policy = self.policy;
        let keys = replicas::Keys::new("known to both", "test");
        if self.shared.is_some() {
            config.shared_seed = Some(KeySeed(keys.seed(&config.name)));
        }
        let pool = Arc::new(Pool::start(config, None).unwrap());
        let mut model = FleetModel::new(MODEL, Arc::clone(&pool));
        model.timeouts = self.timeouts;
        model.upstream_name = self.upstream_name;
        model.forwards_priority = self.forwards_priority;
        let catalog = Catalog::new(vec![Arc::new(model)]);
        let mut gateway = Gateway::in_front_of(catalog, self.tenants);
        if self.cache {
            let stores = match self.cache_redis {
                None => Stores::default(),
                redis => Stores {
                    memory_bytes: 0,
                    redis,
                },
            };
            let cache = Cache::new(&Secret::random(), &stores).unwrap();
            gateway = gateway.with_cache(Arc::new(cache), Prices::default());
        }
        let gateway = Arc::new(gateway);
        if let Some(redis) = self.shared {
            let sharing = replicas::Config {
                redis,
                group: "test".to_owned(),
                keys,
            };
            gateway.share(sharing).unwrap();
        }
        let server = Server::bind(
            ServerConfig {
                listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                // One, so that every request finds the connections of the one before.
                lanes: 1,
                ..ServerConfig::default()
            },
            gateway,
        )
        .unwrap();
        let address = server.address();
        let stop = StopSwitch::new();
        tokio::spawn(server.run(stop.clone()));
        let running = Running {
            address,
            stop,
            pool,
        };
        if self.health_path.is_none() {
            eventually("all workers were heard of", || {
                running.healthy() == workers.len()
            })
            .await;
        }
        running
    }
}

impl Running {
    pub(crate) fn healthy(&self) -> usize {
        let now = Instant::now();
        let snapshot = self.pool.snapshot();
        let workers = snapshot.workers().iter();
        workers
            .filter(|worker| worker.condition(now).is_healthy())
            .count()
    }

    /// Requests that hold a place at a worker.
    pub(crate) fn in_flight(&self) -> u32 {
        let snapshot = self.pool.snapshot();
        snapshot
            .workers()
            .iter()
            .map(|worker| worker.in_flight())
            .sum()
    }

    /// A counter of the metrics page.
    pub(crate) async fn counter(&self, name: &str) -> f64 {
        let page = client::get(self.address, "/metrics").await.text();
        let line = page.lines().find_map(|line| {
            let value = line.strip_prefix(name)?.rsplit(' ').next()?;
            value.parse().ok()
        });
        line.unwrap_or_else(|| panic!("no {name} in {page}"))
    }
}

/// Polls until `condition` holds. Panics after ten seconds.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(10), "never: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
