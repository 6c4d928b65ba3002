//! How likely drafts are to be accepted, position by position.
//!
//! For a source of drafts, `S_i` is the chance that position `i` is accepted *once it is reached*:
//! `accepted[i] / reached[i]`, where a draft reaches position `i` when it is longer than `i` and all
//! before `i` was accepted. This is Kaplan and Meier's estimate: a draft that ends early (a short lookup, a
//! smaller depth) says nothing about the positions it does not have, and biases nothing. Then
//! `survival_i = S_0 ... S_i` and a draft of `k` tokens gives `E(k) = 1 + survival_0 + ... + survival_{k-1}`.
//!
//! Acceptance moves with the text, and quickly, while its *shape* over the positions belongs to the drafter
//! and moves slowly. So two things are kept apart:
//! - the **shape** `s_i` of a source: decayed slowly, one value for each position, positions with little
//!   evidence drawn towards the one before;
//! - the **level** `r`: observed rejections over those the shape expects (1: as usual, 2: twice as many), one
//!   number for a source and one for each sequence. It is steady until the latest drafts contradict it ([`level`]).
//!
//! `S_i = 1 - min(1, r (1 - s_i))`. One number adapts faster than sixteen, and carries what was learnt at a
//! small depth over to positions that are not drafted now. A sequence's level is drawn towards that of
//! its source until it has rejections of its own: `r = (observed + m r_source) / (expected + m)`.
//!
//! A drafter that stops early because it is not sure counts like one that was rejected there: `survival` is the
//! chance that a position is drafted *and* accepted. How often drafts go on to the next position is kept too
//! ([`Acceptance::goes_on`]): rows that are not drafted cost nothing.
//!
//! # Example
//! ```
//! use std::time::Duration;
//! use forespeak_speculation::{Acceptance, Source};
//!
//! let mut acceptance = Acceptance::default();
//! for step in 0..200 {
//!     let now = Duration::from_millis(20 * step);
//!     acceptance.observe(now, 1, Source::Model, 4, 4); // a sequence that is easy to guess
//!     acceptance.observe(now, 2, Source::Model, 4, 0); // and one that is not
//! }
//! let easy = acceptance.survival(1, Source::Model);
//! let hard = acceptance.survival(2, Source::Model);
//! let new = acceptance.survival(3, Source::Model);
//! assert!(easy[0] > 0.9 && hard[0] < 0.15);
//! assert!(hard[0] < new[0] && new[0] < easy[0]);
//! ```

mod level;
mod shape;

use std::time::Duration;

use foldhash::HashMap;

use level::{Decay, Level};
use shape::Shape;

use crate::source::{SOURCES, Source};

/// Deepest draft that is ever planned. Even certain drafts gain little beyond: 16 rows already share one
/// pass over the weights.
pub const MAX_DEPTH: usize = 16;

/// Sequences remembered. More than any engine runs at once; beyond it the longest unseen are forgotten.
const MAX_SEQUENCES: usize = 4_096;

/// A sequence's level. Slow in time: in a large batch its turn to probe comes rarely.
const SEQUENCE_DECAY: Decay = Decay {
    drafts: 12.0,
    seconds: 4.0,
};

/// A source's level. Slower in drafts, for it is fed by many sequences, and new ones start from it.
const SOURCE_DECAY: Decay = Decay {
    drafts: 24.0,
    seconds: 1.0,
};

/// Expected rejections that a sequence's own record must reach to count as much as its source's. Of lookups it takes more: how
/// well they match says most of what sets one sequence apart from another, and what is left is mostly luck.
fn sequence_prior(source: Source) -> f64 {
    if source.runs_a_model() { 2.0 } else { 8.0 }
}

/// The same between a source's level and "as the shape says": at first half a dozen drafts, because one alone may be bad luck, and
/// a source that is given up for it, behind all that was read for it, is hardly tried again. Later a source that was as usual for
/// long may change at once.
fn source_prior(drafts: u64) -> f64 {
    const FIRST_DRAFTS: u64 = 12;
    if drafts < FIRST_DRAFTS { 3.0 } else { 1.0 }
}

/// Survival of each position of a draft, falling.
pub type Survival = [f64; MAX_DEPTH];

/// Acceptance by source and sequence.
#[derive(Debug, Clone, Default)]
pub struct Acceptance {
    sources: [SourceRecord; SOURCES],
    sequences: HashMap<u64, SequenceRecord>,
    clock: u64,
}

#[derive(Debug, Clone, Default)]
struct SourceRecord {
    shape: Shape,
    level: Level,
    /// Positions drafted over those planned and reached.
    drafted: Level,
    totals: Totals,
}

/// One draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// Tokens that were planned.
    pub planned: usize,
    /// Tokens that were drafted and verified: fewer if the drafter stopped.
    pub drafted: usize,
    /// Tokens of these that were accepted.
    pub accepted: usize,
}

#[derive(Debug, Clone, Default)]
struct SequenceRecord {
    levels: [Level; SOURCES],
    seen: u64,
}

/// Counters that only grow, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Drafts verified.
    pub drafts: u64,
    /// Tokens drafted at each position.
    pub drafted: [u64; MAX_DEPTH],
    /// Tokens accepted at each position.
    pub accepted: [u64; MAX_DEPTH],
}

impl Totals {
    /// Tokens drafted at all positions.
    pub fn draft_tokens(&self) -> u64 {
        self.drafted.iter().sum()
    }

    /// Tokens accepted at all positions.
    pub fn accepted_tokens(&self) -> u64 {
        self.accepted.iter().sum()
    }

    fn add(&mut self, drafted: usize, accepted: usize) {
        self.drafts += 1;
        for count in self.drafted.iter_mut().take(drafted) {
            *count += 1;
        }
        for count in self.accepted.iter_mut().take(accepted) {
            *count += 1;
        }
    }
}

impl Acceptance {
    /// Learns that `accepted` of `drafted` tokens of one draft were accepted. Empty drafts say nothing.
    pub fn observe(
        &mut self,
        now: Duration,
        sequence: u64,
        source: Source,
        drafted: usize,
        accepted: usize,
    ) {
        let seen = Seen {
            planned: drafted,
            drafted,
            accepted,
        };
        self.observe_draft(now, sequence, source, seen);
    }

    /// The same for a draft that may have ended before it was as long as planned.
    pub fn observe_draft(&mut self, now: Duration, sequence: u64, source: Source, seen: Seen) {
        self.count(source, seen);
        self.learn(now, sequence, source, seen);
    }

    /// Learns from a draft, or from one that could have been made: lookups are held against the text in any case.
    pub(crate) fn learn(&mut self, now: Duration, sequence: u64, source: Source, seen: Seen) {
        let made = seen.drafted.min(MAX_DEPTH);
        let accepted = seen.accepted.min(made);
        let stopped = made < seen.planned.min(MAX_DEPTH);
        // Where it stopped it counts as rejected.
        let drafted = made + usize::from(stopped);
        if drafted == 0 {
            return;
        }
        let Some(record) = self.sources.get_mut(source.index()) else {
            return;
        };
        record
            .drafted
            .observe(now, made as f64, drafted as f64, SOURCE_DECAY);
        let expected = record.shape.expected_rejections(drafted, accepted, source);
        let observed = f64::from(u8::from(accepted < drafted));
        // Where much more is rejected than usual, that is the text's doing: it says little about the drafter. The few
        // positions that probes reach would else sink below those that they do not.
        let usual = record.level.ratio(1.0, source_prior(record.totals.drafts));
        let weight = usual.max(1.0).powi(-2);
        record.shape.observe(drafted, accepted, weight);
        record.level.observe(now, observed, expected, SOURCE_DECAY);
        let own = self.own(sequence);
        if let Some(level) = own.levels.get_mut(source.index()) {
            level.observe(now, observed, expected, SEQUENCE_DECAY);
        }
    }

    /// Counts a draft that was made; empty ones are none.
    pub(crate) fn count(&mut self, source: Source, seen: Seen) {
        let drafted = seen.drafted.min(MAX_DEPTH);
        let accepted = seen.accepted.min(drafted);
        if drafted == 0 {
            return;
        }
        if let Some(record) = self.sources.get_mut(source.index()) {
            record.totals.add(drafted, accepted);
        }
    }

    fn own(&mut self, sequence: u64) -> &mut SequenceRecord {
        self.clock += 1;
        self.make_room(sequence);
        let own = self.sequences.entry(sequence).or_default();
        own.seen = self.clock;
        own
    }

    /// Survival of each position for the next draft of a sequence; one never seen is like its source.
    pub fn survival(&self, sequence: u64, source: Source) -> Survival {
        let mut survival = [0.0; MAX_DEPTH];
        let Some(record) = self.sources.get(source.index()) else {
            return survival;
        };
        let usual = record.level.ratio(1.0, source_prior(record.totals.drafts));
        let level = self
            .sequences
            .get(&sequence)
            .and_then(|own| own.levels.get(source.index()))
            .map_or(usual, |own| own.ratio(usual, sequence_prior(source)));
        let mut product = 1.0;
        for (survival, shape) in survival.iter_mut().zip(record.shape.values(source)) {
            product *= 1.0 - (level * (1.0 - shape)).min(1.0);
            *survival = product;
        }
        survival
    }

    /// Chance that a draft of a source goes on to the next position where more is planned.
    pub fn goes_on(&self, source: Source) -> f64 {
        self.sources
            .get(source.index())
            .map_or(1.0, |record| {
                record
                    .drafted
                    .ratio(1.0, source_prior(record.totals.drafts))
            })
            .min(1.0)
    }

    /// Counters of a source.
    pub fn totals(&self, source: Source) -> Totals {
        self.sources
            .get(source.index())
            .map(|record| record.totals)
            .unwrap_or_default()
    }

    /// Forgets a sequence that ended; what its source learnt stays.
    pub fn forget(&mut self, sequence: u64) {
        self.sequences.remove(&sequence);
    }

    fn make_room(&mut self, sequence: u64) {
        if self.sequences.len() < MAX_SEQUENCES || self.sequences.contains_key(&sequence) {
            return;
        }
        let oldest = self.sequences.iter().min_by_key(|(_, own)| own.seen);
        if let Some(oldest) = oldest.map(|(&id, _)| id) {
            self.sequences.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::Noise;
    use crate::source::Strength;

    fn draft(noise: &mut Noise, chances: &[f64]) -> usize {
        chances
            .iter()
            .take_while(|&&chance| noise.uniform() < chance)
            .count()
    }

    #[test]
    fn short_drafts_and_changing_depths_bias_nothing() {
        let chances = [0.9, 0.8, 0.5, 0.7, 0.3];
        let mut acceptance = Acceptance::default();
        let mut noise = Noise::new(3);
        let mut sums = [0.0; 5];
        for round in 0..20_000u64 {
            let depth = 1 + (noise.uniform() * 5.0) as usize;
            let accepted = draft(&mut noise, &chances[..depth]);
            // Many sequences, so that the source is what is tested.
            acceptance.observe(Duration::ZERO, round % 997, Source::Model, depth, accepted);
            let survival = acceptance.survival(u64::MAX, Source::Model);
            for (sum, value) in sums.iter_mut().zip(survival) {
                *sum += value;
            }
        }
        let mut product = 1.0;
        for (position, chance) in chances.iter().enumerate() {
            product *= chance;
            let mean = sums[position] / 20_000.0;
            assert!(
                (mean - product).abs() < 0.06,
                "{position}: {mean} for {product}"
            );
        }
        let totals = acceptance.totals(Source::Model);
        assert_eq!(totals.drafts, 20_000);
        assert!(totals.drafted.is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn one_draft_that_failed_does_not_give_a_source_up() {
        let mut acceptance = Acceptance::default();
        acceptance.observe(Duration::ZERO, 1, Source::Model, 2, 0);
        let next = acceptance.survival(2, Source::Model)[0];
        assert!(next > 0.2, "{next}");
    }

    #[test]
    fn a_shift_is_followed_within_two_dozen_drafts_in_both_directions() {
        let mut acceptance = Acceptance::default();
        let mut noise = Noise::new(5);
        for phase in 0..6 {
            let chance = if phase % 2 == 0 { 0.85 } else { 0.1 };
            for _ in 0..150 {
                let accepted = draft(&mut noise, &[chance; 3]);
                acceptance.observe(Duration::ZERO, 1, Source::Model, 3, accepted);
            }
            for _ in 0..24 {
                let accepted = draft(&mut noise, &[0.95 - chance; 3]);
                acceptance.observe(Duration::ZERO, 1, Source::Model, 3, accepted);
            }
            let found = acceptance.survival(1, Source::Model)[0];
            assert!((found - (0.95 - chance)).abs() < 0.3, "{phase}: {found}");
        }
    }

    #[test]
    fn deep_positions_rise_with_the_level_though_they_are_not_drafted() {
        let mut acceptance = Acceptance::default();
        for _ in 0..100 {
            acceptance.observe(Duration::ZERO, 1, Source::Model, 6, 1);
        }
        let before = acceptance.survival(1, Source::Model);
        for _ in 0..40 {
            acceptance.observe(Duration::ZERO, 1, Source::Model, 2, 2);
        }
        let after = acceptance.survival(1, Source::Model);
        assert!(before[4] < 0.05 && after[4] > 0.5, "{before:?} {after:?}");
    }

    #[test]
    fn a_few_lookups_that_went_far_say_little_of_how_far_others_go() {
        let furthest = |source: Source| {
            let mut acceptance = Acceptance::default();
            for sequence in 0..8 {
                let accepted = if sequence % 2 == 0 { 4 } else { 1 };
                acceptance.observe(Duration::ZERO, sequence, source, 4, accepted);
            }
            acceptance.survival(99, source)[11]
        };
        let (looked_up, by_model) = (
            furthest(Source::Ngram(Strength::Turn)),
            furthest(Source::Model),
        );
        assert!(looked_up < 0.1 && by_model > 0.2, "{looked_up} {by_model}");
    }

    #[test]
    fn memory_is_bounded_and_the_ended_are_forgotten() {
        let mut acceptance = Acceptance::default();
        for sequence in 0..2 * MAX_SEQUENCES as u64 {
            acceptance.observe(Duration::ZERO, sequence, Source::Model, 2, 1);
        }
        assert_eq!(acceptance.sequences.len(), MAX_SEQUENCES);
        let last = 2 * MAX_SEQUENCES as u64 - 1;
        assert!(acceptance.sequences.contains_key(&last));
        acceptance.forget(last);
        assert!(!acceptance.sequences.contains_key(&last));
    }
}
