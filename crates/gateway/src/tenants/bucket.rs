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
//!
//! **With other gateways** (`g` in all) every bucket holds what all have spent, as they tell each other in turns.
//! What was spent in this turn and the last they may not know yet, so each spends no more than its part of what
//! was left before; and a part that one went by two turns ago was reckoned from what another had not told by then, so
//! four turns count:
//! ```text
//! part      = (left at this turn + spent here in the last three) / g
//! goes here = spent here in these four turns + amount <= part,  or nothing was spent here in them
//! ```
//! The last condition lets through what is larger than a part. So the limit is exceeded by at most one request
//! per other gateway, as long as word takes no longer than a turn; and a burst at one gateway that would take
//! more than its part is spread over a few turns.

use std::time::{Duration, Instant};

const MINUTE: f64 = 60.0;
/// Turns whose spending is held against a part. Two or three let gateways that hear of each other late exceed the
/// limit together, by up to a quarter.
const RECENT_TURNS: usize = 4;

/// What was spent of a rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    spent: f64,
    at: Instant,
    /// Spent here since the start, for the others to know.
    total: f64,
    /// What may be spent here until the others are heard of again; `None` if there are none.
    part: Option<f64>,
    /// Spent here in the last turns and in this one.
    recent: [f64; RECENT_TURNS],
}

/// How long whoever has spent its part waits: a turn or two, in the whole seconds of a header.
const NEXT_TURN: Duration = Duration::from_secs(1);

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
            total: 0.0,
            part: None,
            recent: [0.0; RECENT_TURNS],
        }
    }

    /// What was spent here since the start, refunds taken off.
    pub(super) fn total(&self) -> f64 {
        self.total
    }

    /// What counts against the limit now.
    pub(super) fn level(&mut self, limit: u64, now: Instant) -> f64 {
        self.forgive(limit, now);
        self.spent
    }

    /// The others were heard of: they have spent so much since the last time, and by their books at least so
    /// much counts. More than a minute's worth is forgotten: all of it will be forgiven.
    pub(super) fn turn(
        &mut self,
        limit: u64,
        spent_elsewhere: f64,
        level: f64,
        others: usize,
        now: Instant,
    ) {
        self.forgive(limit, now);
        let elsewhere = spent_elsewhere.min(limit as f64);
        self.spent = (self.spent + elsewhere)
            .max(level.min(limit as f64))
            .max(0.0);
        self.recent.rotate_left(1);
        self.recent[RECENT_TURNS - 1] = 0.0;
        let left = limit as f64 - self.spent + self.spent_recently();
        self.part = (others > 0).then(|| left / (others as f64 + 1.0));
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
        let here = self.spent_recently();
        if here > 0.0 && self.part.is_some_and(|part| here + amount as f64 > part) {
            return Err(NEXT_TURN);
        }
        self.spend(amount as f64);
        Ok(())
    }

    fn spend(&mut self, amount: f64) {
        self.spent = (self.spent + amount).max(0.0);
        self.total += amount;
        let current = &mut self.recent[RECENT_TURNS - 1];
        *current = (*current + amount).max(0.0);
    }

    fn spent_recently(&self) -> f64 {
        self.recent.iter().sum()
    }

    /// Corrects a guess: what was taken for what was used.
    pub(super) fn settle(&mut self, limit: u64, taken: u64, used: u64, now: Instant) {
        self.forgive(limit, now);
        self.spend(used as f64 - taken as f64);
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

    #[test]
    fn what_others_spend_counts_and_what_is_left_is_shared() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        bucket.turn(100, 60.0, 0.0, 1, start);
        assert_eq!(bucket.allowance(100, start).remaining, 40);
        for _ in 0..20 {
            bucket.take(100, 1, start).unwrap();
        }
        assert_eq!(bucket.take(100, 1, start), Err(NEXT_TURN));
        for _ in 1..RECENT_TURNS {
            bucket.turn(100, 0.0, 0.0, 1, start);
            // The others may not have heard of it yet, or of what it was reckoned from.
            assert_eq!(bucket.take(100, 1, start), Err(NEXT_TURN));
        }
        bucket.turn(100, 0.0, 0.0, 1, start);
        assert!(bucket.take(100, 10, start).is_ok());
        // When the others are gone, all of it is ours again.
        bucket.turn(100, 0.0, 0.0, 0, start);
        assert!(bucket.take(100, 10, start).is_ok());
        assert_eq!(bucket.total(), 40.0);
    }

    #[test]
    fn what_is_larger_than_a_part_still_goes() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        bucket.turn(100, 0.0, 0.0, 3, start);
        assert!(bucket.take(100, 90, start).is_ok());
    }

    #[test]
    fn a_newcomer_takes_over_the_level_and_no_debt_is_endless() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        bucket.turn(60, 0.0, 50.0, 1, start);
        assert_eq!(bucket.level(60, start), 50.0);
        bucket.turn(60, 1e9, 0.0, 1, start);
        assert_eq!(bucket.level(60, start), 110.0);
        bucket.turn(60, -1e9, 0.0, 1, start);
        assert_eq!(bucket.level(60, start), 0.0);
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

        /// However requests fall on the gateways, and though word may take a turn, together they let through no
        /// more than the rate allows, one minute's worth, and one request per other gateway.
        #[test]
        fn the_rate_holds_over_all_gateways(
            limit in 20_u64..2_000,
            gateways in 2_usize..5,
            turns in proptest::collection::vec(
                (0_u64..2_000, any::<u32>(), proptest::collection::vec((0_usize..5, 1_u64..20), 0..60)), 1..40),
        ) {
            const LARGEST: f64 = 19.0;
            let start = Instant::now();
            let mut now = start;
            let mut buckets = vec![Bucket::new(start); gateways];
            for bucket in &mut buckets {
                bucket.turn(limit, 0.0, 0.0, gateways - 1, now);
            }
            // What each has spent by the last turn, and what each has heard of each.
            let mut by_last_turn = vec![0.0; gateways];
            let mut heard = vec![vec![0.0; gateways]; gateways];
            let mut through = 0.0;
            for (milliseconds, late, requests) in turns {
                for (at, amount) in requests {
                    if buckets[at % gateways].take(limit, amount, now).is_ok() {
                        through += amount as f64;
                    }
                }
                now += Duration::from_millis(milliseconds);
                let totals: Vec<f64> = buckets.iter().map(Bucket::total).collect();
                for (at, bucket) in buckets.iter_mut().enumerate() {
                    let mut spent = 0.0;
                    for other in (0..gateways).filter(|other| *other != at) {
                        let is_late = late >> (at * gateways + other) & 1 == 1;
                        let total = if is_late { by_last_turn[other] } else { totals[other] };
                        spent += total - heard[at][other];
                        heard[at][other] = total;
                    }
                    bucket.turn(limit, spent, 0.0, gateways - 1, now);
                }
                by_last_turn = totals;
                let rate = limit as f64 * (1.0 + (now - start).as_secs_f64() / MINUTE);
                let slack = LARGEST * (gateways - 1) as f64;
                prop_assert!(through <= rate + slack + 1e-6, "{through} of {rate} and {slack}");
            }
        }
    }
}
