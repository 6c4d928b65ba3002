//! What the cache has done. Counted here, named and exported by the gateway.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use crate::policy::Bypass;
use crate::recording::Unfit;

/// Upper bounds of the store's latency buckets, in seconds. The last is the budget of a lookup.
pub const LATENCY_BUCKETS: [f64; 8] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02];

/// What a store is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// An entry.
    Get,
    /// To keep one.
    Put,
    /// To tell the others what was invalidated.
    Invalidate,
}

impl Operation {
    /// All labels, for those who export them.
    pub const LABELS: [&str; 3] = ["get", "put", "invalidate"];
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreOutcome {
    /// It answered.
    Done,
    /// It refused, or the connection broke.
    Failed,
    /// It took too long.
    TimedOut,
    /// It was not asked: no connection stands, or the breaker is open.
    Skipped,
}

impl StoreOutcome {
    /// All labels, for those who export them.
    pub const LABELS: [&str; 4] = ["ok", "error", "timeout", "skipped"];
}

/// Where a hit came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// This process.
    Memory,
    /// Redis.
    Redis,
}

impl Tier {
    /// All labels, for those who export them.
    pub const LABELS: [&str; 2] = ["memory", "redis"];
}

/// Counters of one cache.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    hits: [AtomicU64; 2],
    misses: AtomicU64,
    coalesced: AtomicU64,
    bypassed: [AtomicU64; Bypass::LABELS.len()],
    stored: AtomicU64,
    stored_bytes: AtomicU64,
    unfit: [AtomicU64; Unfit::LABELS.len()],
    evictions: AtomicU64,
    rejected: AtomicU64,
    stale: AtomicU64,
    retries: AtomicU64,
    invalidations: AtomicU64,
    store: [[AtomicU64; 4]; 3],
    store_nanoseconds: [AtomicU64; 3],
    store_latency: [[AtomicU64; LATENCY_BUCKETS.len() + 1]; 3],
    /// Prompts and answers, by model.
    saved: RwLock<BTreeMap<Box<str>, [AtomicU64; 2]>>,
}

/// Models whose savings are told apart; those of more are told together.
const MAX_MODELS: usize = 256;

/// What they are told under.
const OTHER_MODELS: &str = "other";

/// Tokens that nobody had to compute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// By this model.
    pub model: String,
    /// Of prompts.
    pub prompt_tokens: u64,
    /// Of answers.
    pub completion_tokens: u64,
}

/// A reading of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CacheCounts {
    /// Answers out of a store, by [`Tier`].
    pub hits: [u64; 2],
    /// Answers that were made.
    pub misses: u64,
    /// Answers shared with somebody who asked first.
    pub coalesced: u64,
    /// Requests that the cache had no part in, by [`Bypass`].
    pub bypassed: [u64; Bypass::LABELS.len()],
    /// Answers kept.
    pub stored: u64,
    /// Their bytes as they lie in the store.
    pub stored_bytes: u64,
    /// Answers not kept, by [`Unfit`].
    pub unfit: [u64; Unfit::LABELS.len()],
    /// Entries that had to leave for others.
    pub evictions: u64,
    /// Entries that were not ours, altered, or of an unknown format.
    pub rejected: u64,
    /// Entries that had expired or been invalidated.
    pub stale: u64,
    /// Requests that tried again because somebody else's attempt had failed.
    pub retries: u64,
    /// Invalidations asked for here.
    pub invalidations: u64,
    /// Questions to Redis, by [`Operation`] and [`StoreOutcome`].
    pub store: [[u64; 4]; 3],
    /// The time they took together, by [`Operation`].
    pub store_seconds: [f64; 3],
    /// How many took how long, by [`Operation`]: one count per bucket of [`LATENCY_BUCKETS`], and the rest.
    pub store_latency: [[u64; LATENCY_BUCKETS.len() + 1]; 3],
    /// Requests in flight that others may join.
    pub flights: usize,
    /// Bytes held for those who join late.
    pub flight_bytes: usize,
    /// Entries in memory.
    pub entries: u64,
    /// Bytes in memory.
    pub bytes: u64,
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

fn bump<const N: usize>(counters: &[AtomicU64; N], place: usize) {
    if let Some(counter) = counters.get(place) {
        add(counter, 1);
    }
}

impl Counts {
    pub(crate) fn hit(&self, tier: Tier) {
        bump(&self.hits, tier as usize);
    }

    pub(crate) fn missed(&self) {
        add(&self.misses, 1);
    }

    pub(crate) fn coalesced(&self) {
        add(&self.coalesced, 1);
    }

    pub(crate) fn bypassed(&self, why: Bypass) {
        bump(&self.bypassed, why.place());
    }

    pub(crate) fn stored(&self, bytes: usize) {
        add(&self.stored, 1);
        add(&self.stored_bytes, bytes as u64);
    }

    pub(crate) fn unfit(&self, why: Unfit) {
        bump(&self.unfit, why.place());
    }

    pub(crate) fn evicted(&self) {
        add(&self.evictions, 1);
    }

    pub(crate) fn rejected(&self) {
        add(&self.rejected, 1);
    }

    pub(crate) fn stale(&self) {
        add(&self.stale, 1);
    }

    pub(crate) fn retried(&self) {
        add(&self.retries, 1);
    }

    pub(crate) fn invalidated(&self) {
        add(&self.invalidations, 1);
    }

    pub(crate) fn saved(&self, model: &str, prompt_tokens: u64, completion_tokens: u64) {
        let amounts = [prompt_tokens, completion_tokens];
        let count = |counters: &[AtomicU64; 2]| {
            for (counter, amount) in counters.iter().zip(amounts) {
                add(counter, amount);
            }
        };
        {
            let saved = self.saved.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(counters) = saved.get(model) {
                return count(counters);
            }
        }
        let mut saved = self.saved.write().unwrap_or_else(PoisonError::into_inner);
        let model = if saved.len() < MAX_MODELS {
            model
        } else {
            OTHER_MODELS
        };
        count(saved.entry(model.into()).or_default());
    }

    /// What was saved, by model.
    pub(crate) fn saved_by_model(&self) -> Vec<Saved> {
        let saved = self.saved.read().unwrap_or_else(PoisonError::into_inner);
        let all = saved.iter();
        all.map(|(model, [prompt, completion])| Saved {
            model: model.to_string(),
            prompt_tokens: prompt.load(Ordering::Relaxed),
            completion_tokens: completion.load(Ordering::Relaxed),
        })
        .collect()
    }

    pub(crate) fn store(&self, operation: Operation, outcome: StoreOutcome, took: Duration) {
        let place = operation as usize;
        if let Some(outcomes) = self.store.get(place) {
            bump(outcomes, outcome as usize);
        }
        if outcome == StoreOutcome::Skipped {
            return;
        }
        if let Some(total) = self.store_nanoseconds.get(place) {
            add(total, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
        let seconds = took.as_secs_f64();
        let bucket = LATENCY_BUCKETS.partition_point(|bound| *bound < seconds);
        if let Some(buckets) = self.store_latency.get(place) {
            bump(buckets, bucket);
        }
    }

    pub(crate) fn read(&self) -> CacheCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheCounts {
            hits: self.hits.each_ref().map(get),
            misses: get(&self.misses),
            coalesced: get(&self.coalesced),
            bypassed: self.bypassed.each_ref().map(get),
            stored: get(&self.stored),
            stored_bytes: get(&self.stored_bytes),
            unfit: self.unfit.each_ref().map(get),
            evictions: get(&self.evictions),
            rejected: get(&self.rejected),
            stale: get(&self.stale),
            retries: get(&self.retries),
            invalidations: get(&self.invalidations),
            store: self
                .store
                .each_ref()
                .map(|outcomes| outcomes.each_ref().map(get)),
            store_seconds: self
                .store_nanoseconds
                .each_ref()
                .map(|total| Duration::from_nanos(get(total)).as_secs_f64()),
            store_latency: self
                .store_latency
                .each_ref()
                .map(|row| row.each_ref().map(get)),
            ..CacheCounts::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_counted_in_the_bucket_that_holds_it() {
        let counts = Counts::default();
        counts.store(
            Operation::Get,
            StoreOutcome::Done,
            Duration::from_micros(100),
        );
        counts.store(
            Operation::Get,
            StoreOutcome::TimedOut,
            Duration::from_millis(21),
        );
        counts.store(Operation::Get, StoreOutcome::Skipped, Duration::ZERO);
        let read = counts.read();
        assert_eq!(read.store[0], [1, 0, 1, 1]);
        assert_eq!(read.store_latency[0], [1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert!((read.store_seconds[0] - 0.0211).abs() < 1e-9);
    }
}
