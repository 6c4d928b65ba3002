//! The books about one worker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fleet::Worker;
use routing::admission::WorkerLedger;
use routing::calibration::Calibration;
use routing::index::Source;

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
}
