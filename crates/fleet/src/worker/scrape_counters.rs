//! How often a worker was looked at, and how often in vain.

use std::sync::atomic::{AtomicU64, Ordering};

/// What became of scrapes and probes. Counted here, named and exported by the gateway.
#[derive(Debug, Default)]
pub struct ScrapeCounters {
    pub(crate) scrapes: AtomicU64,
    pub(crate) scrapes_failed: AtomicU64,
    pub(crate) probes: AtomicU64,
    pub(crate) probes_failed: AtomicU64,
}

/// A reading of [`ScrapeCounters`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScrapeCounts {
    /// Metrics pages asked for.
    pub scrapes: u64,
    /// Of these, failed.
    pub scrapes_failed: u64,
    /// Probes sent.
    pub probes: u64,
    /// Of these, failed.
    pub probes_failed: u64,
}

impl ScrapeCounters {
    /// The counters now.
    pub fn read(&self) -> ScrapeCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ScrapeCounts {
            scrapes: get(&self.scrapes),
            scrapes_failed: get(&self.scrapes_failed),
            probes: get(&self.probes),
            probes_failed: get(&self.probes_failed),
        }
    }

    pub(crate) fn count(total: &AtomicU64, failures: &AtomicU64, failed: bool) {
        total.fetch_add(1, Ordering::Relaxed);
        failures.fetch_add(u64::from(failed), Ordering::Relaxed);
    }
}
