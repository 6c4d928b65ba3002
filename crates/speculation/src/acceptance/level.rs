//! Rejections seen over rejections expected: steady while nothing changes, quick when something does.
//!
//! A record of a dozen drafts follows a shift at once, but is off by a third for no reason at all, and a depth that
//! follows it hunts. One of a hundred drafts is steady and late. So both are kept: the long one answers, until
//! the short one contradicts it by more than its own standard error allows for; then the long one begins anew
//! with what the short one holds. Rejections come about as counts do: where `m` are expected, `sqrt(m)` is their error.

use std::time::Duration;

/// How fast a level forgets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decay {
    /// Drafts after which half of the short record is replaced.
    pub(super) drafts: f64,
    /// Seconds after which half of it is discounted when the next draft comes. While steps only probe, drafts are
    /// rare and what they replace is old.
    pub(super) seconds: f64,
}

/// Time discounts at most so many half-lives for one draft: a single one must not decide alone where steps
/// are slow, and four probes in a row must.
const MOST_HALF_LIVES: f64 = 0.5;

/// The long record's half-lives over the short one's.
const LONGER: f64 = 8.0;

/// Standard errors by which the short record may show more rejections than the long one, and fewer. A false alarm turns
/// drafts off until probes find out; a false hope costs a few drafts, and is all that brings back what was off.
const MORE: f64 = 3.0;
const FEWER: f64 = 2.0;

/// A decayed ratio.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Level {
    short: Record,
    long: Record,
    latest: Duration,
}

/// Decayed counts.
#[derive(Debug, Clone, Copy, Default)]
struct Record {
    observed: f64,
    expected: f64,
}

impl Record {
    fn push(&mut self, keep: f64, observed: f64, expected: f64) {
        self.observed = self.observed * keep + observed;
        self.expected = self.expected * keep + expected;
    }
}

impl Level {
    /// Counts one draft.
    pub(super) fn observe(&mut self, now: Duration, observed: f64, expected: f64, decay: Decay) {
        let passed = now.saturating_sub(self.latest).as_secs_f64();
        let by_time = (passed / decay.seconds).min(MOST_HALF_LIVES);
        let half_lives = 1.0 / decay.drafts + by_time;
        self.latest = now;
        self.short.push((-half_lives).exp2(), observed, expected);
        self.long
            .push((-half_lives / LONGER).exp2(), observed, expected);
        if self.is_contradicted() {
            self.long = self.short;
        }
    }

    /// Whether the short record cannot well be a part of the long one.
    fn is_contradicted(&self) -> bool {
        let usual = self.long.observed / self.long.expected.max(f64::MIN_POSITIVE);
        let mean = usual * self.short.expected;
        // The decayed sum of counts has half the variance of as many whole ones; one rejection is never proof.
        let error = (0.5 * mean).max(0.5).sqrt();
        let apart = (self.short.observed - mean) / error;
        !(-FEWER..=MORE).contains(&apart)
    }

    /// The ratio, drawn towards `usual` as if `weight` rejections had been expected and seen at that rate.
    pub(super) fn ratio(&self, usual: f64, weight: f64) -> f64 {
        (self.long.observed + weight * usual) / (self.long.expected + weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::Noise;

    const DECAY: Decay = Decay {
        drafts: 12.0,
        seconds: 4.0,
    };

    /// Drafts of two tokens that are each rejected with `chance`, where `expected` was expected.
    fn feed(level: &mut Level, noise: &mut Noise, drafts: usize, chance: f64, expected: f64) {
        for _ in 0..drafts {
            let accepted = (0..2).take_while(|_| noise.uniform() >= chance).count();
            let reached = (accepted + 1).min(2);
            let rejected = f64::from(u8::from(accepted < 2));
            level.observe(Duration::ZERO, rejected, reached as f64 * expected, DECAY);
        }
    }

    #[test]
    fn before_anything_was_seen_it_answers_as_usual() {
        assert_eq!(Level::default().ratio(1.7, 2.0), 1.7);
    }

    #[test]
    fn a_steady_rate_is_found_and_hardly_trembles() {
        let (mut level, mut noise) = (Level::default(), Noise::new(11));
        feed(&mut level, &mut noise, 200, 0.2, 0.2);
        let mut furthest = 0.0f64;
        for _ in 0..500 {
            feed(&mut level, &mut noise, 1, 0.2, 0.2);
            furthest = furthest.max((level.ratio(1.0, 0.3) - 1.0).abs());
        }
        // A record of a dozen drafts alone is off by more than one half now and then.
        assert!(furthest < 0.6, "{furthest}");
    }

    #[test]
    fn a_text_that_becomes_hard_is_noticed_within_sixteen_drafts() {
        for seed in 0..20 {
            let (mut level, mut noise) = (Level::default(), Noise::new(seed));
            feed(&mut level, &mut noise, 200, 0.15, 0.15);
            feed(&mut level, &mut noise, 16, 0.95, 0.15);
            let ratio = level.ratio(1.0, 0.3);
            assert!(ratio > 2.0, "seed {seed}: {ratio}");
        }
    }

    #[test]
    fn a_text_that_becomes_easy_is_noticed_within_two_dozen_drafts() {
        for seed in 0..20 {
            let (mut level, mut noise) = (Level::default(), Noise::new(seed));
            feed(&mut level, &mut noise, 200, 0.95, 0.15);
            let hard = level.ratio(1.0, 0.3);
            feed(&mut level, &mut noise, 24, 0.15, 0.15);
            let ratio = level.ratio(1.0, 0.3);
            assert!(ratio < 0.5 * hard, "seed {seed}: {hard} became {ratio}");
        }
    }

    #[test]
    fn one_rejection_after_many_successes_is_no_alarm() {
        let mut level = Level::default();
        for _ in 0..200 {
            level.observe(Duration::ZERO, 0.0, 0.1, DECAY);
        }
        let before = level.ratio(1.0, 0.3);
        level.observe(Duration::ZERO, 1.0, 0.1, DECAY);
        let after = level.ratio(1.0, 0.3);
        assert!(
            after > before && after < before + 0.12,
            "{before} to {after}"
        );
    }

    #[test]
    fn time_discounts_the_old_but_one_draft_never_decides_alone() {
        let (mut level, mut noise) = (Level::default(), Noise::new(3));
        feed(&mut level, &mut noise, 100, 0.2, 0.2);
        let before = level.ratio(1.0, 0.3);
        level.observe(Duration::from_secs(3_600), 1.0, 0.2, DECAY);
        let after = level.ratio(1.0, 0.3);
        assert!(
            after > before && after < 1.5 * before,
            "{before} to {after}"
        );
    }
}
