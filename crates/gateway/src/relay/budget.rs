//! How many requests may be tried again.
//!
//! When a fleet is overloaded, every retry makes it worse: without a bound, three tries each turn a bad
//! minute into an outage. So retries are paid for by requests: each one puts a share of a retry aside (a fifth, by default), a
//! retry takes a whole one out, and what lies there is bounded. A few failures are always tried again, a
//! flood of them adds at most that share to the load.

use std::sync::atomic::{AtomicU32, Ordering};

/// What a retry costs, in units of the balance: the grain of a request's share.
const RETRY: u32 = 1_000;

/// How many requests may be tried again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryLimits {
    /// Retries that a request pays for.
    pub share: f64,
    /// Retries that are there at the start: enough for a worker that dies under a quiet gateway.
    pub at_start: u32,
    /// The most that can be saved up: a burst no larger than this follows a long quiet time.
    pub at_most: u32,
}

impl Default for RetryLimits {
    fn default() -> Self {
        Self {
            share: 0.2,
            at_start: 20,
            at_most: 100,
        }
    }
}

/// The retries that are left. Shared by all requests of a model.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    balance: AtomicU32,
    deposit: u32,
    most: u32,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self::new(RetryLimits::default())
    }
}

impl RetryBudget {
    pub(crate) fn new(limits: RetryLimits) -> Self {
        let most = limits.at_most.saturating_mul(RETRY);
        Self {
            balance: AtomicU32::new(limits.at_start.saturating_mul(RETRY).min(most)),
            // Out of range it is brought into it: NaN becomes nothing.
            deposit: (limits.share * f64::from(RETRY)).round() as u32,
            most,
        }
    }

    /// A request came in.
    pub(crate) fn deposit(&self) {
        let (deposit, most) = (self.deposit, self.most);
        let add =
            |balance: u32| (balance < most).then_some(balance.saturating_add(deposit).min(most));
        // At the most nothing is added.
        let _full = self
            .balance
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Pays for a retry; false if there is not enough.
    pub(crate) fn withdraw(&self) -> bool {
        self.balance
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |balance| {
                balance.checked_sub(RETRY)
            })
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_everything_fails_retries_add_at_most_a_fifth() {
        let budget = RetryBudget::default();
        while budget.withdraw() {}
        let mut retries = 0;
        for _request in 0..1_000 {
            budget.deposit();
            retries += u32::from(budget.withdraw());
        }
        assert_eq!(retries, 1_000 / 5);
    }

    #[test]
    fn what_is_saved_up_is_bounded() {
        let budget = RetryBudget::default();
        for _request in 0..1_000_000 {
            budget.deposit();
        }
        let mut retries = 0;
        while budget.withdraw() {
            retries += 1;
        }
        assert_eq!(retries, RetryLimits::default().at_most);
    }

    #[test]
    fn the_limits_are_the_operators() {
        let none = RetryBudget::new(RetryLimits {
            share: 0.0,
            at_start: 0,
            at_most: 100,
        });
        none.deposit();
        assert!(!none.withdraw());
        let half = RetryBudget::new(RetryLimits {
            share: 0.5,
            at_start: 1,
            at_most: 1,
        });
        assert!(half.withdraw() && !half.withdraw());
        half.deposit();
        assert!(!half.withdraw());
        half.deposit();
        assert!(half.withdraw());
    }
}
