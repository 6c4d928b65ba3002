//! The running fleet: the registry, and the tasks that keep it true.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::error::FleetError;
use crate::kv_events::{EventsConfig, KvChange, KvUpdate, Source as EventSource, Subscriber};
use crate::registry::{
    DnsSource, Registry, RegistryConfig, Snapshot, Source, follow_dns, follow_file,
};
use crate::scrape::{ScrapeConfig, probe_loop, scrape_loop};
use crate::spec::{DEFAULT_POOL, WorkerSpec};
use crate::worker::Worker;
use routing::WorkerId;

/// KV updates that may wait for the index. Beyond, subscribers wait, and publishers drop in the end:
/// which is noticed.
const UPDATES_WAITING: usize = 1024;

/// How often draining workers are looked at.
const REAP_EVERY: Duration = Duration::from_millis(100);

/// Everything the fleet can be told.
#[derive(Debug, Clone)]
pub struct FleetConfig {
    /// How workers are judged and how they leave.
    pub registry: RegistryConfig,
    /// How often they are asked.
    pub scrape: ScrapeConfig,
    /// How their KV events are followed.
    pub events: EventsConfig,
    /// Workers known from the start.
    pub workers: Vec<WorkerSpec>,
    /// A file that lists more.
    pub file: Option<String>,
    /// The pool of those in it that name none.
    pub file_pool: String,
    /// Names that resolve to more.
    pub dns: Vec<DnsSource>,
}

impl Default for FleetConfig {
    fn default() -> Self {
        Self {
            registry: RegistryConfig::default(),
            scrape: ScrapeConfig::default(),
            events: EventsConfig::default(),
            workers: Vec::new(),
            file: None,
            file_pool: DEFAULT_POOL.to_owned(),
            dns: Vec::new(),
        }
    }
}

/// The workers, watched. Dropping it stops the watching.
#[derive(Debug)]
pub struct Fleet {
    registry: Arc<Registry>,
    stop: CancellationToken,
    keeper: JoinHandle<()>,
}

impl Fleet {
    /// Begins to watch. The receiver gets the KV events of all workers; drop it if nobody wants them.
    ///
    /// # Errors
    /// If a worker of the configuration cannot be used.
    pub fn start(config: FleetConfig) -> Result<(Self, mpsc::Receiver<KvUpdate>), FleetError> {
        let registry = Arc::new(Registry::new(config.registry));
        registry.assign(&Source::Config, config.workers, Instant::now().into_std())?;
        let (updates, receiver) = mpsc::channel(UPDATES_WAITING);
        let stop = CancellationToken::new();
        let keeper = Keeper {
            registry: Arc::clone(&registry),
            scrape: config.scrape,
            events: config.events,
            updates,
            watched: HashMap::new(),
        };
        let mut tasks = JoinSet::new();
        if let Some(path) = config.file {
            tasks.spawn(follow_file(path, config.file_pool, Arc::clone(&registry)));
        }
        for dns in config.dns {
            tasks.spawn(follow_dns(dns, Arc::clone(&registry)));
        }
        let stopped = stop.clone();
        let keeper = tokio::spawn(async move {
            stopped.run_until_cancelled(keeper.run()).await;
            tasks.shutdown().await;
        });
        let fleet = Self {
            registry,
            stop,
            keeper,
        };
        Ok((fleet, receiver))
    }

    /// Who is in the fleet.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The fleet as it is now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.registry.snapshot()
    }

    /// Makes these the workers of the configuration: a reload.
    ///
    /// # Errors
    /// If one of them cannot be used; then nothing has changed.
    pub fn reload(&self, workers: Vec<WorkerSpec>) -> Result<(), FleetError> {
        let now = Instant::now().into_std();
        self.registry.assign(&Source::Config, workers, now)
    }

    /// Whether [`Self::reload`] could be done; nothing is changed.
    ///
    /// # Errors
    /// Those of a reload.
    pub fn check_reload(&self, workers: &[WorkerSpec]) -> Result<(), FleetError> {
        self.registry.check(workers)
    }

    /// Stops watching and waits until nothing runs any more.
    pub async fn stop(mut self) {
        self.stop.cancel();
        // The keeper can only have been cancelled or have panicked; either way it has ended.
        let _ended = (&mut self.keeper).await;
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Starts and ends the tasks of every worker.
struct Keeper {
    registry: Arc<Registry>,
    scrape: ScrapeConfig,
    events: EventsConfig,
    updates: mpsc::Sender<KvUpdate>,
    /// Dropping a set ends its tasks.
    watched: HashMap<WorkerId, JoinSet<()>>,
}

impl Keeper {
    async fn run(mut self) {
        let mut changes = self.registry.changes();
        loop {
            changes.mark_unchanged();
            self.watch_new();
            self.let_go().await;
            tokio::select! {
                // The registry lives as long as we do, so this cannot fail.
                _changed = changes.changed() => {}
                () = sleep(REAP_EVERY) => {}
            }
        }
    }

    fn watch_new(&mut self) {
        for worker in self.registry.snapshot().workers() {
            if !self.watched.contains_key(&worker.id()) {
                let tasks = self.watch(worker);
                self.watched.insert(worker.id(), tasks);
            }
        }
    }

    fn watch(&self, worker: &Arc<Worker>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        tasks.spawn(probe_loop(Arc::clone(worker), self.scrape));
        tasks.spawn(scrape_loop(Arc::clone(worker), self.scrape));
        // Checked when the worker was taken in.
        let endpoints = worker.spec().event_endpoints().unwrap_or_default();
        let topic = worker
            .spec()
            .events
            .as_ref()
            .map(|events| events.topic.clone());
        for ((events, replay), rank) in endpoints.into_iter().zip(0..) {
            let source = EventSource {
                worker: worker.id(),
                name: worker.name().to_owned(),
                rank,
                events,
                replay,
                topic: topic.clone().unwrap_or_default(),
            };
            let counters = Arc::clone(&worker.events);
            let subscriber = Subscriber::new(source, self.events, self.updates.clone(), counters);
            tasks.spawn(subscriber.run());
        }
        tasks
    }

    /// Ends the tasks of workers that have left, tells the index, and only then frees their numbers: no
    /// late event of the old worker can be taken for one of the next.
    async fn let_go(&mut self) {
        for worker in self.registry.reap(Instant::now().into_std()) {
            if let Some(mut tasks) = self.watched.remove(&worker.id()) {
                tasks.shutdown().await;
            }
            let gone = KvUpdate {
                worker: worker.id(),
                rank: 0,
                change: KvChange::Gone,
            };
            // Without a listener there is nobody to mistake the number.
            let _nobody_listens = self.updates.send(gone).await;
            self.registry.free(worker.id());
            tracing::info!(worker = %worker.name(), "worker has left the fleet");
        }
    }
}
