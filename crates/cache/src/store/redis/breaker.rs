//! Whether it is worth asking.
//!
//! A few failures in a row open the breaker; from then on nobody waits. Only the keeper closes it, when its own
//! question was answered in time: no request ever pays for finding out.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Failures in a row that are one too many. Each may have cost a request the whole budget.
const MAX_FAILURES: u32 = 3;

/// Whether it is worth asking; see above.
#[derive(Debug, Default)]
pub struct Breaker {
    failures: AtomicU32,
    open: AtomicBool,
}

impl Breaker {
    /// Whether nobody should ask now.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// An answer came in time.
    pub fn succeeded(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    /// None came.
    pub fn failed(&self) {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_FAILURES {
            self.open.store(true, Ordering::Relaxed);
        }
    }

    /// All is well again.
    pub fn close(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.open.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_open_it_and_only_the_keeper_closes_it() {
        let breaker = Breaker::default();
        for _ in 0..MAX_FAILURES - 1 {
            breaker.failed();
        }
        breaker.succeeded();
        breaker.failed();
        assert!(!breaker.is_open());
        for _ in 0..MAX_FAILURES {
            breaker.failed();
        }
        assert!(breaker.is_open());
        breaker.succeeded();
        assert!(breaker.is_open());
        breaker.close();
        assert!(!breaker.is_open());
    }
}
