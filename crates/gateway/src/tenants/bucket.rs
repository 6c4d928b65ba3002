//! How much of a rate is used up.
//!
//! A token bucket, seen from the other side: it remembers what was spent, which the passing of time forgives.
//!
//! ```text
//! spent(now) = max(0, spent - rate * elapsed)       rate = limit / 60 s
//! goes       = spent + amount <= limit              one minute's worth may come at once
//! wait       = (spent + amount - limit) / rate
//! ```
//! The limit is an argument, so that a new configuration may change it without forgetting what was spent. What
//! is spent may exceed the limit: an answer that turned out longer than reserved is a debt.

use std::time::{Duration, Instant};

const MINUTE: f64 = 60.0;

/// What was spent of a rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    spent: f64,
    at: Instant,
}

/// What is left of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// A minute's worth.
    pub limit: u64,
    /// What may be spent at once.
    pub remaining: u64,
    /// When all of it is there again.
    pub reset: Duration,
}

impl Bucket {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            spent: 0.0,
            at: now,
        }
    }

    fn forgive(&mut self, limit: u64, now: Instant) {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        self.spent = (self.spent - elapsed * limit as f64 / MINUTE).max(0.0);
        self.at = self.at.max(now);
    }

    /// Spends an amount, or says how long until it could be. An amount over the limit never could be.
    pub(super) fn take(&mut self, limit: u64, amount: u64, now: Instant) -> Result<(), Duration> {
        self.forgive(limit, now);
        let over = self.spent + amount as f64 - limit as f64;
        if over > 0.0 {
            return Err(time_to_forgive(over, limit));
        }
        self.spent += amount as f64;
        Ok(())
    }

    /// Corrects a guess: what was taken for what was used.
    pub(super) fn settle(&mut self, limit: u64, taken: u64, used: u64, now: Instant) {
        self.forgive(limit, now);
        self.spent = (self.spent + used as f64 - taken as f64).max(0.0);
    }

    pub(super) fn allowance(&mut self, limit: u64, now: Instant) -> Allowance {
        self.forgive(limit, now);
        Allowance {
            limit,
            remaining: (limit as f64 - self.spent).max(0.0) as u64,
            reset: time_to_forgive(self.spent, limit),
        }
    }
}

fn time_to_forgive(amount: f64, limit: u64) -> Duration {
    Duration::try_from_secs_f64(amount * MINUTE / limit as f64).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_minutes_worth_may_come_at_once_and_then_at_the_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        for _ in 0..60 {
            bucket.take(60, 1, start).unwrap();
        }
        assert_eq!(bucket.take(60, 1, start), Err(SECOND));
        assert_eq!(bucket.take(60, 1, start + SECOND), Ok(()));
        assert_eq!(bucket.take(60, 3, start + SECOND), Err(3 * SECOND));
    }

    #[test]
    fn whoever_waits_as_told_is_let_in() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        bucket.take(7, 7, start).unwrap();
        let wait = bucket.take(7, 2, start).unwrap_err();
        // A Retry-After is rounded up to whole seconds; a nanosecond stands for that here.
        let told = start + wait + Duration::from_nanos(1);
        assert_eq!(bucket.take(7, 2, told), Ok(()));
    }

    #[test]
    fn a_longer_answer_is_a_debt_and_a_shorter_one_a_refund() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        bucket.take(600, 100, start).unwrap();
        bucket.settle(600, 100, 900, start);
        assert_eq!(bucket.take(600, 100, start), Err(40 * SECOND));
        bucket.settle(600, 900, 0, start);
        assert_eq!(bucket.allowance(600, start).remaining, 600);
    }

    #[test]
    fn a_new_limit_keeps_what_was_spent() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        bucket.take(100, 90, start).unwrap();
        assert!(bucket.take(50, 1, start).is_err());
        assert!(bucket.take(200, 100, start).is_ok());
    }

    #[test]
    fn a_limit_of_zero_lets_nothing_through_and_never_promises() {
        let mut bucket = Bucket::new(Instant::now());
        assert_eq!(bucket.take(0, 1, Instant::now()), Err(Duration::MAX));
    }

    proptest! {
        /// In any stretch of time no more goes through than the rate allows and one minute's worth.
        #[test]
        fn the_rate_holds(limit in 1_u64..10_000, steps in proptest::collection::vec((0_u64..5_000, 1_u64..500), 1..200)) {
            let start = Instant::now();
            let mut bucket = Bucket::new(start);
            let (mut now, mut through) = (start, 0);
            for (milliseconds, amount) in steps {
                now += Duration::from_millis(milliseconds);
                if bucket.take(limit, amount, now).is_ok() {
                    through += amount;
                }
                let bound = limit as f64 * (1.0 + (now - start).as_secs_f64() / MINUTE);
                prop_assert!(through as f64 <= bound + 1e-6);
            }
        }
    }
}
