//! How many requests may be tried again.
//!
//! When a fleet is overloaded, every retry makes it worse: without a bound, three tries each turn a bad
//! minute into an outage. So retries are paid for by requests: each one puts a fifth of a retry aside, a
//! retry takes a whole one out, and what lies there is bounded. A few failures are always tried again, a
//! flood of them adds at most a fifth to the load.

use std::sync::atomic::{AtomicU32, Ordering};

/// What a retry costs, in units of the balance.
const RETRY: u32 = 5;

/// What a request puts aside.
const DEPOSIT: u32 = 1;

/// The balance at the start: enough for a worker that dies under a quiet gateway.
const START: u32 = 20 * RETRY;

/// The most that can be saved up: a burst no larger than this follows a long quiet time.
const MOST: u32 = 100 * RETRY;

/// The retries that are left. Shared by all requests of a pool.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    balance: AtomicU32,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self {
            balance: AtomicU32::new(START),
        }
    }
}

impl RetryBudget {
    /// A request came in.
    pub(crate) fn deposit(&self) {
        let add = |balance: u32| (balance < MOST).then_some((balance + DEPOSIT).min(MOST));
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
        assert_eq!(retries, 1_000 / RETRY);
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
        assert_eq!(retries, MOST / RETRY);
    }
}
