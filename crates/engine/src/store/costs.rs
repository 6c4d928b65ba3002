//! Whether loading is faster than computing: both as they were measured here.
//!
//! ```text
//! load    = blocks * mean seconds a block of that tier took, from asking to the checked bytes
//! compute = blocks * 16 tokens * mean seconds a prompt token took
//! worth   = load < compute, or one of the two was never measured
//! ```
//! A tier that is too slow is tried again now and then: what made it slow may have passed.

use std::time::Duration;

use model::BLOCK_TOKENS;

use super::Tier;

/// How much of a mean a new measurement replaces: the last ten or so decide.
const NEW_SHARE: f64 = 0.2;

/// A tier that lost so often in a row is tried once more.
const RETRY_AFTER: u32 = 16;

/// A mean that follows what is measured.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mean(Option<f64>);

impl Mean {
    /// Notes that `count` of something took so long.
    pub(crate) fn note(&mut self, took: Duration, count: usize) {
        if count == 0 {
            return;
        }
        let one = took.as_secs_f64() / count as f64;
        self.0 = Some(self.0.map_or(one, |mean| mean + NEW_SHARE * (one - mean)));
    }

    /// What so many would take; `None` before the first measurement.
    pub(crate) fn of(&self, count: usize) -> Option<Duration> {
        self.0
            .map(|mean| Duration::from_secs_f64(mean * count as f64))
    }
}

/// What loading costs, by tier.
#[derive(Debug, Default)]
pub(super) struct LoadCosts {
    tiers: [(Mean, u32); Tier::ALL.len()],
}

impl LoadCosts {
    /// Whether to load so many blocks, if a prompt token takes `token` to compute.
    pub(super) fn is_worth(&mut self, tier: Tier, blocks: usize, token: Option<Duration>) -> bool {
        let (load, lost) = &mut self.tiers[tier as usize];
        let (Some(load), Some(token)) = (load.of(blocks), token) else {
            return true;
        };
        let compute = token.saturating_mul((blocks * BLOCK_TOKENS) as u32);
        if load < compute || *lost >= RETRY_AFTER {
            *lost = 0;
            return true;
        }
        *lost += 1;
        false
    }

    /// Notes what loading took.
    pub(super) fn note(&mut self, tier: Tier, blocks: usize, took: Duration) {
        self.tiers[tier as usize].0.note(took, blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_was_never_measured_is_tried() {
        let mut costs = LoadCosts::default();
        assert!(costs.is_worth(Tier::Shared, 10, Some(MS)));
        costs.note(Tier::Shared, 10, 1_000 * MS);
        assert!(costs.is_worth(Tier::Shared, 10, None));
        assert!(!costs.is_worth(Tier::Shared, 10, Some(MS)));
        assert!(costs.is_worth(Tier::Memory, 10, Some(MS)));
    }

    #[test]
    fn a_slow_tier_is_tried_again_now_and_then_and_comes_back() {
        let mut costs = LoadCosts::default();
        costs.note(Tier::Disk, 1, 20 * MS);
        let tries: Vec<bool> = (0..=RETRY_AFTER)
            .map(|_| costs.is_worth(Tier::Disk, 1, Some(MS)))
            .collect();
        assert_eq!(tries.iter().filter(|tried| **tried).count(), 1);
        assert!(tries[RETRY_AFTER as usize]);
        for _ in 0..20 {
            costs.note(Tier::Disk, 1, MS);
        }
        assert!(costs.is_worth(Tier::Disk, 1, Some(MS)));
    }
}
