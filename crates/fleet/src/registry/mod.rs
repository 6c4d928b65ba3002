//! Who is in the fleet, according to whom.
//!
//! Workers come from several sources: the configuration, a watched file, a DNS name, an operator. Each
//! source says what its whole set is, and the registry works out what that changes. A worker stays for as
//! long as any source names it; when none does, it drains, and leaves when its last request has ended or
//! its time is up. Readers take a [`Snapshot`]: a consistent, numbered list that never changes under them.
//!
//! A worker whose settings change is another worker: the old one drains while the new one starts.

mod dns;
mod file;
mod snapshot;

pub use dns::DnsSource;
pub use file::{MAX_FILE_BYTES, parse_worker_file, read_worker_file};
pub use snapshot::Snapshot;

pub(crate) use dns::follow_dns;
pub(crate) use file::follow_file;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::breaker::BreakerConfig;
use crate::error::FleetError;
use crate::health::{DrainReason, HealthConfig};
use crate::spec::WorkerSpec;
use crate::worker::Worker;
use routing::WorkerId;

/// The most workers of a fleet, leaving ones included. Every decision looks at each of them.
pub const MAX_WORKERS: usize = 1024;

/// Who names a worker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The configuration.
    Config,
    /// Admin calls.
    Operator,
    /// A watched file, by its path.
    File(String),
    /// A DNS name.
    Dns(String),
}

/// How workers are judged and how they leave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RegistryConfig {
    /// For every worker's health.
    pub health: HealthConfig,
    /// For every worker's breaker.
    pub breaker: BreakerConfig,
    /// How long a removed worker may take to finish its requests.
    pub drain_at_most: Duration,
}

impl Default for RegistryConfig {
    fn default() -> Self {
        Self {
            health: HealthConfig::default(),
            breaker: BreakerConfig::default(),
            drain_at_most: Duration::from_secs(600),
        }
    }
}

#[derive(Debug)]
struct Entry {
    worker: Arc<Worker>,
    sources: BTreeSet<Source>,
}

#[derive(Debug, Default)]
struct Books {
    /// Workers that somebody names, by name.
    named: BTreeMap<String, Entry>,
    /// Workers that nobody names any more and that still drain.
    leaving: Vec<Arc<Worker>>,
    /// Numbers in use, those of workers whose end is not told to everybody yet included.
    numbers: BTreeSet<u16>,
    version: u64,
}

/// The workers of the fleet.
#[derive(Debug)]
pub struct Registry {
    config: RegistryConfig,
    books: Mutex<Books>,
    current: ArcSwap<Snapshot>,
    version: watch::Sender<u64>,
}

impl Registry {
    /// An empty fleet.
    pub fn new(config: RegistryConfig) -> Self {
        Self {
            config,
            books: Mutex::default(),
            current: ArcSwap::from_pointee(Snapshot::default()),
            version: watch::Sender::new(0),
        }
    }

    /// The fleet as it is now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Tells of every new snapshot's number.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Makes `specs` the whole set of a source; new ones are numbered in this order. Workers that no source names any more begin to drain.
    ///
    /// # Errors
    /// If a spec cannot be used or there are too many; then nothing has changed.
    pub fn assign(
        &self,
        source: &Source,
        specs: Vec<WorkerSpec>,
        now: Instant,
    ) -> Result<(), FleetError> {
        let names = check_specs(&specs)?;
        let mut books = self.books();
        books.check_room(&specs)?;
        let mut changed = false;
        let dropped: Vec<String> = books
            .named
            .iter()
            .filter(|(name, entry)| entry.sources.contains(source) && !names.contains(*name))
            .map(|(name, _)| name.clone())
            .collect();
        for name in dropped {
            changed |= books.release(&name, source, now);
        }
        for spec in specs {
            changed |= self.name(&mut books, source, spec, now)?;
        }
        if changed {
            self.publish(&mut books);
        }
        Ok(())
    }

    /// Whether these could become the whole set of a source; nothing is changed.
    ///
    /// # Errors
    /// Those of [`Self::assign`].
    pub fn check(&self, specs: &[WorkerSpec]) -> Result<(), FleetError> {
        check_specs(specs)?;
        self.books().check_room(specs)
    }

    /// Adds one worker on an operator's word, or takes back one that was leaving.
    ///
    /// # Errors
    /// If the spec cannot be used or the fleet is full.
    pub fn add(&self, spec: WorkerSpec, now: Instant) -> Result<WorkerId, FleetError> {
        spec.check()?;
        let name = spec.name().to_owned();
        let mut books = self.books();
        books.check_room(std::slice::from_ref(&spec))?;
        if self.name(&mut books, &Source::Operator, spec, now)? {
            self.publish(&mut books);
        }
        let entry = books.named.get(&name);
        entry
            .map(|entry| entry.worker.id())
            .ok_or(FleetError::UnknownWorker { name })
    }

    /// Removes a worker on an operator's word, whoever named it: it drains and leaves. A source that
    /// still names it brings it back when it next speaks.
    ///
    /// # Errors
    /// If there is no such worker.
    pub fn remove(&self, name: &str, now: Instant) -> Result<WorkerId, FleetError> {
        let mut books = self.books();
        let Some(entry) = books.named.remove(name) else {
            return Err(FleetError::UnknownWorker {
                name: name.to_owned(),
            });
        };
        let id = entry.worker.id();
        books.let_go(entry.worker, now);
        self.publish(&mut books);
        Ok(id)
    }

    /// Takes out the workers that have drained, or had their time. Their numbers stay in use until
    /// [`Self::free`].
    pub fn reap(&self, now: Instant) -> Vec<Arc<Worker>> {
        let mut books = self.books();
        let finished = |worker: &Arc<Worker>| {
            let since = worker.draining().map_or(now, |draining| draining.since);
            let waited = now.saturating_duration_since(since);
            worker.in_flight() == 0 || waited >= self.config.drain_at_most
        };
        let (gone, leaving) = std::mem::take(&mut books.leaving)
            .into_iter()
            .partition(finished);
        books.leaving = leaving;
        let gone: Vec<Arc<Worker>> = gone;
        if !gone.is_empty() {
            self.publish(&mut books);
        }
        gone
    }

    /// Lets a reaped worker's number be given out again.
    pub fn free(&self, id: WorkerId) {
        let mut books = self.books();
        let in_use = books
            .named
            .values()
            .map(|entry| &entry.worker)
            .chain(&books.leaving)
            .any(|worker| worker.id() == id);
        debug_assert!(!in_use, "{id} is freed while in the fleet");
        if !in_use {
            books.numbers.remove(&id.0);
        }
    }

    /// Books a source's claim to a worker, making the worker if need be. True if that changes the fleet.
    fn name(
        &self,
        books: &mut Books,
        source: &Source,
        spec: WorkerSpec,
        now: Instant,
    ) -> Result<bool, FleetError> {
        let name = spec.name().to_owned();
        if let Some(entry) = books.named.get_mut(&name) {
            if *entry.worker.spec() == spec {
                entry.sources.insert(source.clone());
                return Ok(false);
            }
            if let Some(entry) = books.named.remove(&name) {
                books.let_go(entry.worker, now);
            }
        }
        let returning = books
            .leaving
            .iter()
            .position(|worker| *worker.spec() == spec);
        let worker = match returning {
            Some(place) => {
                let worker = books.leaving.swap_remove(place);
                let ours =
                    |draining: crate::health::Draining| draining.reason == DrainReason::Removed;
                if worker.draining().is_some_and(ours) {
                    worker.undrain(now);
                }
                worker
            }
            None => {
                let id = books.take_number()?;
                let RegistryConfig {
                    health, breaker, ..
                } = self.config;
                Arc::new(Worker::new(id, spec, health, breaker, now))
            }
        };
        let sources = BTreeSet::from([source.clone()]);
        books.named.insert(name, Entry { worker, sources });
        Ok(true)
    }

    fn publish(&self, books: &mut Books) {
        books.version += 1;
        let workers = books
            .named
            .values()
            .map(|entry| &entry.worker)
            .chain(&books.leaving)
            .cloned()
            .collect();
        let snapshot = Snapshot::new(books.version, workers);
        self.current.store(Arc::new(snapshot));
        self.version.send_replace(books.version);
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether these can be workers of one fleet; gives their names.
fn check_specs(specs: &[WorkerSpec]) -> Result<BTreeSet<String>, FleetError> {
    let mut names = BTreeSet::new();
    for spec in specs {
        spec.check()?;
        let name = spec.name().to_owned();
        if let Some(name) = names.replace(name) {
            return Err(FleetError::DuplicateName { name });
        }
    }
    Ok(names)
}

impl Books {
    /// Whether all of these fit, those that are there already not counted twice.
    fn check_room(&self, wanted: &[WorkerSpec]) -> Result<(), FleetError> {
        let is_there = |spec: &WorkerSpec| {
            let named = self.named.get(spec.name()).map(|entry| entry.worker.spec());
            named == Some(spec) || self.leaving.iter().any(|worker| worker.spec() == spec)
        };
        let new = wanted.iter().filter(|spec| !is_there(spec)).count();
        if self.numbers.len() + new > MAX_WORKERS {
            return Err(FleetError::TooManyWorkers { limit: MAX_WORKERS });
        }
        Ok(())
    }

    /// Withdraws a source's claim. True if that was the last one.
    fn release(&mut self, name: &str, source: &Source, now: Instant) -> bool {
        let Some(entry) = self.named.get_mut(name) else {
            return false;
        };
        entry.sources.remove(source);
        if !entry.sources.is_empty() {
            return false;
        }
        if let Some(entry) = self.named.remove(name) {
            self.let_go(entry.worker, now);
        }
        true
    }

    fn let_go(&mut self, worker: Arc<Worker>, now: Instant) {
        worker.drain(DrainReason::Removed, now);
        self.leaving.push(worker);
    }

    fn take_number(&mut self) -> Result<WorkerId, FleetError> {
        let free = (0..=u16::MAX)
            .take(MAX_WORKERS)
            .find(|number| !self.numbers.contains(number))
            .ok_or(FleetError::TooManyWorkers { limit: MAX_WORKERS })?;
        self.numbers.insert(free);
        Ok(WorkerId(free))
    }
}

#[cfg(test)]
mod tests;
