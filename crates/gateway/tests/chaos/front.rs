//! The gateway in front of the mocks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::client::{Limits, send};
use bytes::Bytes;
use fleet::{EventsSpec, FleetConfig, WorkerSpec, WorkerUrl};
use forespeak_gateway::placement::{Pool, PoolConfig};
use forespeak_gateway::tenants::{SaltSecret, Tenants};
use forespeak_gateway::{
    Catalog, FleetModel, Gateway, RelayTimeouts, Server, ServerConfig, StopSwitch,
};
use testkit::mock_vllm::MockVllm;
use tokio::task::LocalSet;

pub(crate) const MODEL: &str = "mock";

/// Far more than anything waited for here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Short enough that a worker which says nothing more is given up within a run.
const TIMEOUTS: RelayTimeouts = RelayTimeouts {
    connect: Duration::from_secs(1),
    first_byte: Duration::from_secs(2),
    between: Duration::from_secs(1),
    buffer: Duration::from_secs(2),
    shortest_total: Duration::from_secs(4),
    longest_total: Duration::from_secs(10),
};

pub(crate) struct Front {
    pub(crate) address: SocketAddr,
    stop: StopSwitch,
    pool: Arc<Pool>,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.stop.stop_now();
    }
}

impl Front {
    pub(crate) async fn start<'a>(mocks: impl Iterator<Item = &'a MockVllm>) -> Self {
        let workers: Vec<WorkerSpec> = mocks.map(spec).collect();
        let count = workers.len();
        let fleet = FleetConfig {
            workers,
            ..FleetConfig::default()
        };
        let config = PoolConfig::new(fleet::DEFAULT_POOL, fleet);
        let pool = Arc::new(Pool::start(config, None).unwrap());
        let mut model = FleetModel::new(MODEL, Arc::clone(&pool));
        model.timeouts = TIMEOUTS;
        let catalog = Catalog::new(vec![Arc::new(model)]);
        let tenants = Tenants::open(&SaltSecret::from_text("chaos"));
        let gateway = Arc::new(Gateway::in_front_of(catalog, tenants));
        let config = ServerConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            // Two, so that connections may change lanes.
            lanes: 2,
            ..ServerConfig::default()
        };
        let server = Server::bind(config, gateway).unwrap();
        let address = server.address();
        let stop = StopSwitch::new();
        tokio::spawn(server.run(stop.clone()));
        let front = Self {
            address,
            stop,
            pool,
        };
        eventually("all workers are healthy", || front.healthy() == count).await;
        front
    }

    /// Every request was counted once at its end.
    pub(crate) async fn check_drained(&self, asked: usize) {
        let page = page(self.address).await;
        let ended: f64 = page
            .lines()
            .filter(|line| line.starts_with("forespeak_http_requests_total{"))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum();
        assert_eq!(ended as usize, asked, "{page}");
    }

    fn healthy(&self) -> usize {
        let now = Instant::now();
        let snapshot = self.pool.snapshot();
        let healthy = |worker: &&Arc<fleet::Worker>| worker.condition(now).is_healthy();
        snapshot.workers().iter().filter(healthy).count()
    }

    /// Whether no request waits or holds anything any more: no place, no tokens in the books.
    pub(crate) fn is_drained(&self) -> bool {
        let report = self.pool.report();
        report.waiting_requests == 0
            && report.workers.iter().all(|worker| {
                let held = worker.ledger_tokens + worker.backlog_tokens;
                worker.in_flight == 0 && held == 0
            })
    }
}

/// The metrics page.
async fn page(address: SocketAddr) -> String {
    let pool = bench::client::Pool::new(
        bench::client::Address::parse(&format!("http://{address}")).unwrap(),
        false,
    );
    let limits = Limits {
        timeout: PATIENCE,
        leave_after: None,
        keep_text: true,
    };
    let asking = send(&pool, "/metrics", None, Bytes::new(), limits);
    LocalSet::new().run_until(asking).await.text
}

fn spec(mock: &MockVllm) -> WorkerSpec {
    let mut spec = WorkerSpec::new(WorkerUrl::parse(&mock.url()).unwrap());
    spec.events = mock.event_endpoints().map(|(endpoint, replay)| EventsSpec {
        endpoint,
        replay: Some(replay),
        topic: String::new(),
        ranks: 1,
    });
    spec
}

/// Polls until it holds.
pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
