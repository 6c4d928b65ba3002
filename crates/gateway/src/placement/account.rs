//! The books about one worker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fleet::Worker;
use routing::admission::WorkerLedger;
use routing::calibration::Calibration;
use routing::index::{CacheId, PrefixIndex, Source};

use super::ranks::Ranks;

/// The books about one worker, from its arrival in the fleet to its departure.
pub(super) struct Account {
    pub(super) worker: Arc<Worker>,
    /// Tells the books of a worker from those of an earlier one of the same number: a request that
    /// outlives its worker must not settle on its successor.
    pub(super) epoch: u64,
    pub(super) ledger: WorkerLedger,
    pub(super) calibration: Calibration,
    /// The most KV tokens that the open requests can hold, cached or not.
    pub(super) claimed_tokens: u64,
    /// Where among its data-parallel ranks requests were sent.
    pub(super) ranks: Ranks,
    /// When the last page of metrics came that the ledger knows of.
    pub(super) scraped: Option<Instant>,
    /// What the index was told last.
    pub(super) source: Source,
    pub(super) capacity_tokens: Option<u64>,
    /// Tokens in a block of the worker's cache; 1 while unknown.
    pub(super) engine_block_tokens: u64,
    /// Prompts with something new in them that were sent there since its last KV event.
    pub(super) unannounced: u32,
    /// Prompts it announced without a cache salt since it last announced one with.
    pub(super) unsalted: u32,
    /// Whether it was ever sent a salted prompt.
    pub(super) sent_salted: bool,
    /// When its events were last known to come in, or it was met.
    pub(super) events_heard: Duration,
    pub(super) events_missing: bool,
}

impl Account {
    pub(super) fn new(worker: Arc<Worker>, epoch: u64, now: Duration) -> Self {
        Self {
            ranks: Ranks::new(worker.spec().ranks()),
            worker,
            epoch,
            ledger: WorkerLedger::default(),
            calibration: Calibration::default(),
            claimed_tokens: 0,
            scraped: None,
            source: Source::Expectation,
            capacity_tokens: None,
            engine_block_tokens: 1,
            unannounced: 0,
            unsalted: 0,
            sent_salted: false,
            events_heard: now,
            events_missing: false,
        }
    }

    /// The cache that a request fills which was sent to this rank, or to none by name. `None` where the worker chooses
    /// among several.
    pub(super) fn cache(&self, rank: Option<u16>) -> Option<CacheId> {
        let worker = self.worker.id();
        match (rank, self.worker.spec().ranks()) {
            (Some(rank), _) => Some(CacheId { worker, rank }),
            (None, 1) => Some(worker.into()),
            (None, _) => None,
        }
    }

    /// Tells the index what its caches are known by and how large they are.
    pub(super) fn introduce_to(&self, index: &mut PrefixIndex) {
        let ranks = self.worker.spec().ranks();
        let block_tokens = index.block_tokens() as u64;
        let each = |tokens: u64| blocks(tokens / u64::from(ranks), block_tokens);
        let capacity = self.capacity_tokens.map(each);
        index.set_ranks(self.worker.id(), ranks, self.source, capacity);
    }
}

fn blocks(tokens: u64, block_tokens: u64) -> u32 {
    u32::try_from(tokens / block_tokens.max(1)).unwrap_or(u32::MAX)
}
