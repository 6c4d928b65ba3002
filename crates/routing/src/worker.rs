//! What a policy is told about a worker.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// A worker's number in the fleet. Small and dense: the fleet hands a freed number out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct WorkerId(pub u16);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}", self.0)
    }
}

/// Prefill rate assumed until a worker's own has been measured: an 8B model on an A100-class device.
pub const ASSUMED_PREFILL_TOKENS_PER_SECOND: f64 = 10_000.0;

/// Time between tokens assumed until measured.
pub const ASSUMED_INTER_TOKEN: Duration = Duration::from_millis(15);

/// Tokens per engine step assumed until known: vLLM's `max_num_batched_tokens` for online serving.
pub const ASSUMED_STEP_TOKENS: u32 = 8_192;

/// A worker as the fleet sees it at the moment of a decision: the last scrape, and what this gateway knows
/// better because it sent it.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerView {
    /// Which worker.
    pub id: WorkerId,
    /// How much traffic it may take: 1 in health, less while it warms up, 0 when it must get none.
    pub weight: f64,
    /// Tokens its KV cache holds; 0 while unknown.
    pub kv_capacity_tokens: u64,
    /// Share of the KV cache in use by running requests at the last scrape. Cached but idle blocks count as
    /// free, as vLLM counts them.
    pub kv_usage: f64,
    /// Requests being worked on at the last scrape.
    pub running: u32,
    /// Requests waiting inside the worker at the last scrape.
    pub waiting: u32,
    /// How old that scrape is.
    pub metrics_age: Duration,
    /// What the scrape cannot know.
    pub ledger: LedgerView,
    /// Measured prompt tokens per second.
    pub prefill_tokens_per_second: f64,
    /// Measured time between two tokens of a stream.
    pub inter_token: Duration,
    /// The most tokens it computes in one step.
    pub step_tokens: u32,
    /// Share of the cached tokens we predict that this worker then reports (see [`crate::calibration`]).
    pub hit_trust: f64,
}

/// This gateway's own books about a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerView {
    /// Requests sent and not finished.
    pub in_flight: u32,
    /// Requests sent since the last scrape.
    pub sent_since_scrape: u32,
    /// KV tokens (uncached prompt and expected output) sent since the last scrape.
    pub kv_tokens_since_scrape: u64,
    /// Uncached prompt tokens of requests whose first token has not come yet.
    pub prefill_backlog_tokens: u64,
    /// Requests of ours that the last scrape may have counted, ended since or not.
    pub in_last_scrape: u32,
}

/// How fast a worker is, as far as it was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Speeds {
    /// Prompt tokens computed per second of prefill.
    pub prefill_tokens_per_second: Option<f64>,
    /// Time between two tokens of a stream.
    pub inter_token: Option<Duration>,
}

impl Speeds {
    /// The mean of what is known of a pool's workers: what to assume of one that has not shown its own. A number
    /// from elsewhere would make a worker nobody has used yet look faster or slower than all others, and
    /// draw requests away from their caches for no reason.
    pub fn mean(pool: impl Iterator<Item = Self> + Clone) -> Self {
        let rates = pool.clone().filter_map(|one| one.prefill_tokens_per_second);
        let gaps = pool.filter_map(|one| one.inter_token.map(|gap| gap.as_secs_f64()));
        let gap = mean(gaps).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Self {
            prefill_tokens_per_second: mean(rates),
            inter_token: gap,
        }
    }

    /// With what is missing taken from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            prefill_tokens_per_second: self
                .prefill_tokens_per_second
                .or(other.prefill_tokens_per_second),
            inter_token: self.inter_token.or(other.inter_token),
        }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), one| (sum + one, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

impl WorkerView {
    /// A healthy, idle worker with a cache of this size and assumed speeds.
    pub fn idle(id: WorkerId, kv_capacity_tokens: u64) -> Self {
        Self {
            id,
            weight: 1.0,
            kv_capacity_tokens,
            kv_usage: 0.0,
            running: 0,
            waiting: 0,
            metrics_age: Duration::ZERO,
            ledger: LedgerView::default(),
            prefill_tokens_per_second: ASSUMED_PREFILL_TOKENS_PER_SECOND,
            inter_token: ASSUMED_INTER_TOKEN,
            step_tokens: ASSUMED_STEP_TOKENS,
            hit_trust: 1.0,
        }
    }

    /// Requests on the worker now: our own open ones, which we know to the moment, and what others had there at the
    /// last scrape. Our own that ended since are in that scrape, too, and count for nothing.
    pub fn batch(&self) -> u32 {
        let reported = self.running.saturating_add(self.waiting);
        let of_others = reported.saturating_sub(self.ledger.in_last_scrape);
        of_others.saturating_add(self.ledger.in_flight)
    }

    /// With these speeds; what is not among them is assumed.
    #[must_use]
    pub fn at_speeds(self, speeds: Speeds) -> Self {
        Self {
            prefill_tokens_per_second: speeds
                .prefill_tokens_per_second
                .unwrap_or(ASSUMED_PREFILL_TOKENS_PER_SECOND),
            inter_token: speeds.inter_token.unwrap_or(ASSUMED_INTER_TOKEN),
            ..self
        }
    }

    /// KV tokens no request has claimed.
    pub fn kv_free_tokens(&self) -> u64 {
        let capacity = self.kv_capacity_tokens as f64;
        let used = capacity * self.kv_usage.clamp(0.0, 1.0);
        ((capacity - used) as u64).saturating_sub(self.ledger.kv_tokens_since_scrape)
    }

    /// [`Self::kv_free_tokens`] as a share of the cache; 1 while the capacity is unknown.
    pub fn kv_free(&self) -> f64 {
        if self.kv_capacity_tokens == 0 {
            return 1.0;
        }
        self.kv_free_tokens() as f64 / self.kv_capacity_tokens as f64
    }

    /// Prompt tokens per second, never 0.
    pub fn prefill_rate(&self) -> f64 {
        if self.prefill_tokens_per_second > 1.0 {
            self.prefill_tokens_per_second
        } else {
            ASSUMED_PREFILL_TOKENS_PER_SECOND
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_ended_since_the_last_scrape_are_not_in_the_batch() {
        let mut worker = WorkerView::idle(WorkerId(0), 1_000);
        worker.running = 5;
        worker.ledger.in_last_scrape = 3;
        worker.ledger.in_flight = 0;
        assert_eq!(worker.batch(), 2, "those of others");
        worker.ledger.in_flight = 4;
        assert_eq!(worker.batch(), 6);
        // A page from before our requests arrived there.
        worker.running = 0;
        assert_eq!(worker.batch(), 4);
    }

    #[test]
    fn a_worker_that_was_never_measured_is_taken_to_be_like_its_peers() {
        let seen = |rate, millis| Speeds {
            prefill_tokens_per_second: Some(rate),
            inter_token: Some(Duration::from_millis(millis)),
        };
        let pool = [seen(100.0, 40), Speeds::default(), seen(300.0, 20)];
        let typical = Speeds::mean(pool.iter().copied());
        assert_eq!(typical, seen(200.0, 30));
        assert_eq!(Speeds::default().or(typical), typical);
        assert_eq!(pool[0].or(typical), pool[0]);
        assert_eq!(Speeds::mean([].into_iter()), Speeds::default());
    }
}
