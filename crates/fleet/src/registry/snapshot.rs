//! The fleet at one moment.

use std::sync::Arc;
use std::time::Instant;

use crate::health::{Candidate, PanicConfig, Standing, standings};
use crate::worker::Worker;
use routing::WorkerId;

/// A consistent list of workers, ordered by number.
#[derive(Debug, Default)]
pub struct Snapshot {
    version: u64,
    workers: Vec<Arc<Worker>>,
}

impl Snapshot {
    pub(super) fn new(version: u64, mut workers: Vec<Arc<Worker>>) -> Self {
        workers.sort_unstable_by_key(|worker| worker.id());
        Self { version, workers }
    }

    /// Grows with every change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All workers, draining ones included.
    pub fn workers(&self) -> &[Arc<Worker>] {
        &self.workers
    }

    /// The workers of a pool.
    pub fn pool<'a>(&'a self, pool: &'a str) -> impl Iterator<Item = &'a Arc<Worker>> {
        self.workers
            .iter()
            .filter(move |worker| worker.spec().pool == pool)
    }

    /// The workers of a pool with what each may be given now: never nobody while anybody is staying. Those in
    /// `avoid` get nothing and count for nothing, so that a request which they failed may still have the
    /// last worker that is left, in whatever condition it is.
    pub fn standings<'a>(
        &'a self,
        pool: &str,
        panic: PanicConfig,
        avoid: &[WorkerId],
        now: Instant,
    ) -> Vec<(&'a Arc<Worker>, Standing)> {
        let ours = |worker: &&Arc<Worker>| worker.spec().pool == pool;
        let workers: Vec<&'a Arc<Worker>> = self.workers.iter().filter(ours).collect();
        let counts = |worker: &Arc<Worker>| !avoid.contains(&worker.id());
        let candidates: Vec<Candidate> = workers
            .iter()
            .filter(|worker| counts(worker))
            .map(|worker| worker.candidate(now))
            .collect();
        let mut standings = standings(&candidates, panic).into_iter();
        let nothing = Standing {
            weight: 0.0,
            panic: false,
        };
        workers
            .into_iter()
            .map(|worker| {
                let standing = counts(worker).then(|| standings.next()).flatten();
                (worker, standing.unwrap_or(nothing))
            })
            .collect()
    }

    /// The worker of this number.
    pub fn get(&self, id: WorkerId) -> Option<&Arc<Worker>> {
        let place = self
            .workers
            .binary_search_by_key(&id, |worker| worker.id())
            .ok()?;
        self.workers.get(place)
    }

    /// The worker of this name. One that drains under a name that is in use again is found last.
    pub fn by_name(&self, name: &str) -> Option<&Arc<Worker>> {
        let called = |worker: &&Arc<Worker>| worker.name() == name;
        self.workers
            .iter()
            .filter(called)
            .find(|worker| worker.draining().is_none())
            .or_else(|| self.workers.iter().find(called))
    }
}
