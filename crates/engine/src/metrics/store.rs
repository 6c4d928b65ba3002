//! What blocks beyond the executor's memory do for it.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::bounds::TOKEN_DURATIONS;
use super::{Labels, counter, names as n, register};
use crate::store::{Flaw, Tier};

/// Why a block that could have been kept or loaded was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// Too many wait to be written.
    QueueFull,
    /// No tier could keep it.
    Unkept,
    /// Computing it is faster.
    Slow,
    /// It came when nobody waited any more.
    Late,
    /// All blocks are taken by others.
    NoRoom,
    /// It is not what it should be.
    Flaw(Flaw),
}

impl Rejection {
    fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Unkept => "not_kept",
            Self::Slow => "slower_than_computing",
            Self::Late => "late",
            Self::NoRoom => "no_room",
            Self::Flaw(flaw) => Flaw::ALL
                .iter()
                .find(|(which, _)| *which == flaw)
                .map_or("flawed", |(_, name)| name),
        }
    }
}

/// Counters of the block store; copies count together.
#[derive(Debug, Clone)]
pub(crate) struct StoreMetrics {
    offered: Counter,
    stored: Family<Labels<1>, Counter>,
    stored_bytes: Family<Labels<1>, Counter>,
    loaded: Family<Labels<1>, Counter>,
    loaded_bytes: Family<Labels<1>, Counter>,
    lookups: Family<Labels<2>, Counter>,
    rejected: Family<Labels<1>, Counter>,
    load_time: Family<Labels<1>, Histogram, fn() -> Histogram>,
    saved: Counter<f64, AtomicU64>,
}

impl StoreMetrics {
    pub(super) fn new(r: &mut Registry) -> Self {
        let by_tier = |r: &mut Registry, name, help| register(r, name, help, Family::default());
        Self {
            offered: counter(r, n::STORE_OFFERED, "KV blocks offered to the store"),
            stored: by_tier(r, n::STORE_STORED, "KV blocks that were stored, by tier"),
            stored_bytes: by_tier(r, n::STORE_STORED_BYTES, "Bytes that were stored, by tier"),
            loaded: by_tier(r, n::STORE_LOADED, "KV blocks that were loaded, by tier"),
            loaded_bytes: by_tier(r, n::STORE_LOADED_BYTES, "Bytes that were loaded, by tier"),
            lookups: register(
                r,
                n::STORE_LOOKUPS,
                "Prompts looked for in a tier, by whether something was found",
                Family::default(),
            ),
            rejected: register(
                r,
                n::STORE_REJECTED,
                "KV blocks that were not kept or not used, by why",
                Family::default(),
            ),
            load_time: register(
                r,
                n::STORE_LOAD_TIME,
                "From looking for a prompt's blocks to having checked them",
                Family::new_with_constructor(|| Histogram::new(TOKEN_DURATIONS)),
            ),
            saved: register(
                r,
                n::STORE_SAVED,
                "Estimated seconds of prefill that loading made unnecessary, less what it took",
                Counter::default(),
            ),
        }
    }

    pub(crate) fn offered(&self) {
        self.offered.inc();
    }

    pub(crate) fn stored(&self, tier: Tier, blocks: usize, bytes: usize) {
        let label = [(n::LABEL_TIER, tier.name())];
        self.stored.get_or_create(&label).inc_by(blocks as u64);
        self.stored_bytes.get_or_create(&label).inc_by(bytes as u64);
    }

    pub(crate) fn looked_up(&self, tier: Tier, found: bool) {
        let outcome = if found { "found" } else { "missing" };
        let label = [(n::LABEL_TIER, tier.name()), (n::LABEL_OUTCOME, outcome)];
        self.lookups.get_or_create(&label).inc();
    }

    pub(crate) fn loaded(&self, tier: Tier, blocks: usize, bytes: usize, took: Duration) {
        let label = [(n::LABEL_TIER, tier.name())];
        self.loaded.get_or_create(&label).inc_by(blocks as u64);
        self.loaded_bytes.get_or_create(&label).inc_by(bytes as u64);
        self.load_time
            .get_or_create(&label)
            .observe(took.as_secs_f64());
    }

    pub(crate) fn rejected(&self, why: Rejection, blocks: usize) {
        if blocks > 0 {
            let label = [(n::LABEL_REASON, why.name())];
            self.rejected.get_or_create(&label).inc_by(blocks as u64);
        }
    }

    pub(crate) fn saved(&self, time: Duration) {
        self.saved.inc_by(time.as_secs_f64());
    }

    pub(super) fn loaded_blocks(&self) -> u64 {
        let of = |tier: Tier| {
            self.loaded
                .get_or_create(&[(n::LABEL_TIER, tier.name())])
                .get()
        };
        Tier::ALL.into_iter().map(of).sum()
    }

    pub(super) fn stored_blocks(&self) -> u64 {
        let of = |tier: Tier| {
            self.stored
                .get_or_create(&[(n::LABEL_TIER, tier.name())])
                .get()
        };
        Tier::ALL.into_iter().map(of).sum()
    }

    pub(super) fn flawed_blocks(&self) -> u64 {
        let of = |(_, name)| {
            self.rejected
                .get_or_create(&[(n::LABEL_REASON, name)])
                .get()
        };
        Flaw::ALL.into_iter().map(of).sum()
    }
}
