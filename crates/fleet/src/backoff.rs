//! When to try again, and how to keep many clocks from ticking together.
//!
//! `delay(n) = min(first·2^n, longest)·(1 ± jitter)`. The random part is an argument, so that the law
//! itself stays a pure function.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// How far a delay strays from its law, either way: enough to spread a fleet's scrapes over a fifth of
/// their interval.
const JITTER: f64 = 0.1;

/// Doublings after which a delay is at its longest whatever it started from.
const MAX_DOUBLINGS: u32 = 20;

/// A delay that doubles with every failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The delay while all is well.
    pub first: Duration,
    /// The delay it never exceeds, but for jitter.
    pub longest: Duration,
}

impl Backoff {
    /// The delay after so many failures in a row; `chance` is uniform in 0 to 1.
    ///
    /// ```
    /// # use forespeak_fleet as fleet;
    /// use fleet::Backoff;
    /// use std::time::Duration;
    ///
    /// let backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(10) };
    /// assert_eq!(backoff.delay(0, 0.5), Duration::from_millis(500));
    /// assert_eq!(backoff.delay(2, 0.5), Duration::from_secs(2));
    /// assert_eq!(backoff.delay(99, 1.0), Duration::from_secs(11));
    /// ```
    pub fn delay(&self, failures: u32, chance: f64) -> Duration {
        let doubled = self
            .first
            .saturating_mul(1 << failures.min(MAX_DOUBLINGS))
            .min(self.longest.max(self.first));
        doubled.mul_f64(1.0 + JITTER * (2.0 * chance.clamp(0.0, 1.0) - 1.0))
    }
}

/// A number in 0 to 1 for [`Backoff::delay`]. Good for jitter and for nothing else.
pub(crate) fn chance() -> f64 {
    // Every `RandomState` has keys of its own, so hashing a constant gives a fresh number.
    let bits = RandomState::new().hash_one(0_u8);
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_delay_stays_near_its_bounds(
            first in 1_u64..5_000,
            longest in 1_u64..60_000,
            failures in any::<u32>(),
            chance in 0.0..1.0_f64,
        ) {
            let (first, longest) = (Duration::from_millis(first), Duration::from_millis(longest));
            let delay = Backoff { first, longest }.delay(failures, chance);
            prop_assert!(delay >= first.mul_f64(0.89));
            prop_assert!(delay <= longest.max(first).mul_f64(1.11));
        }
    }

    #[test]
    fn chances_differ_and_stay_in_their_range() {
        let chances: Vec<f64> = (0..100).map(|_| chance()).collect();
        assert!(chances.iter().all(|chance| (0.0..1.0).contains(chance)));
        assert!(chances.windows(2).any(|pair| pair[0] != pair[1]));
    }
}
