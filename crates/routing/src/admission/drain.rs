//! How fast room is made: the base of an honest Retry-After.

use std::time::Duration;

/// The shortest Retry-After: less would only bring the same client back into the same crowd.
pub const MIN_RETRY: Duration = Duration::from_secs(1);

/// The longest Retry-After: beyond two minutes nothing we know now will still be true.
pub const MAX_RETRY: Duration = Duration::from_secs(120);

/// Over how long the rate is averaged. Long enough for a few answers to end, short enough to follow the day.
const MEMORY: Duration = Duration::from_secs(10);

/// KV tokens that running requests give back per second, averaged over the last seconds.
///
/// ```
/// use std::time::Duration;
/// use forespeak_routing::admission::DrainRate;
///
/// let at = Duration::from_millis;
/// let mut drain = DrainRate::default();
/// for tenth in 1..=600 {
///     drain.settled(500, at(100 * tenth));
/// }
/// assert!((drain.tokens_per_second(at(60_000)) - 5_000.0).abs() < 100.0);
/// // 40,000 tokens must go before there is room: that takes about eight seconds.
/// assert_eq!(drain.retry_after(40_000, at(60_000)).as_secs(), 8);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct DrainRate {
    /// Tokens, each weighted by how much of its time in memory is left.
    tokens: f64,
    /// Seconds of observation, weighted likewise.
    seconds: f64,
    last: Duration,
}

impl DrainRate {
    /// A request is over and gives back so many tokens.
    pub fn settled(&mut self, kv_tokens: u64, now: Duration) {
        *self = self.aged(now);
        self.tokens += kv_tokens as f64;
    }

    /// Tokens given back per second; 0 while nothing was seen.
    pub fn tokens_per_second(&self, now: Duration) -> f64 {
        let aged = self.aged(now);
        if aged.seconds > 0.0 {
            aged.tokens / aged.seconds
        } else {
            0.0
        }
    }

    /// Whether anything was ever given back: before, there is nothing to promise or to refuse by.
    pub fn is_known(&self) -> bool {
        self.tokens > 0.0
    }

    /// In whole seconds rounded up, when so many tokens should have been given back.
    pub fn retry_after(&self, missing_tokens: u64, now: Duration) -> Duration {
        let rate = self.tokens_per_second(now);
        let seconds = if rate > 0.0 {
            missing_tokens as f64 / rate
        } else {
            f64::INFINITY
        };
        let seconds = seconds
            .ceil()
            .clamp(MIN_RETRY.as_secs_f64(), MAX_RETRY.as_secs_f64());
        Duration::from_secs(seconds as u64)
    }

    fn aged(&self, now: Duration) -> Self {
        let passed = now.saturating_sub(self.last).as_secs_f64();
        let memory = MEMORY.as_secs_f64();
        let kept = (-passed / memory).exp();
        Self {
            tokens: self.tokens * kept,
            seconds: self.seconds * kept + memory * (1.0 - kept),
            last: self.last.max(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_that_gives_nothing_back_promises_nothing() {
        assert_eq!(
            DrainRate::default().retry_after(1, Duration::from_secs(5)),
            MAX_RETRY
        );
    }

    #[test]
    fn a_stall_lengthens_the_promise() {
        let mut drain = DrainRate::default();
        for second in 0..30 {
            drain.settled(1_000, Duration::from_secs(second));
        }
        let promised = drain.retry_after(5_000, Duration::from_secs(30));
        let after_a_stall = drain.retry_after(5_000, Duration::from_secs(50));
        assert!(
            after_a_stall >= promised * 3,
            "{promised:?} then {after_a_stall:?}"
        );
    }
}
