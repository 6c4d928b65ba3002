//! How far a drafter can be believed about itself.
//!
//! A draft model knows where it is guessing: the smaller its lead of the best token over the second best, the
//! likelier the target disagrees. [`Confidence`] is that lead as a share of both, `1 / (1 + e^-lead)`. A token that
//! was *drawn* may only be judged by what it was drawn from, never by itself (see [`crate::verify::speculative_draft`]):
//! the likelier the best token is, the less there is to disagree about. Both kinds are counted apart;
//! [`Calibration`] counts how often tokens of each confidence were accepted. What follows from it is [`crate::Worth`]'s.
//!
//! # Example
//! ```
//! use forespeak_speculation::{Calibration, Confidence};
//!
//! let mut calibration = Calibration::default();
//! for _ in 0..200 {
//!     calibration.observe(Confidence::of_lead(3.0), true);
//!     calibration.observe(Confidence::of_lead(0.1), false);
//! }
//! let sure = calibration.chance(Confidence::of_lead(3.0));
//! let torn = calibration.chance(Confidence::of_lead(0.1));
//! assert!(sure > 0.95 && torn < 0.1);
//! ```

/// Classes of confidence that are counted apart.
const CLASSES: usize = 16;

/// Tokens of a class after which half of what it knew is replaced.
const HALF_LIFE: f64 = 150.0;

/// Tokens' worth of trust in a class before it has any: one accepted as often as its confidence says.
const PRIOR: f64 = 6.0;

/// A drafter's confidence in a token, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Confidence {
    share: f64,
    kind: Kind,
}

/// What a confidence was read off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The token's lead.
    Lead,
    /// The odds that the token was drawn from.
    Odds,
}

/// Number of kinds.
const KINDS: usize = 2;

impl Confidence {
    /// From the lead of the token's score over the best other one.
    pub fn of_lead(lead: f32) -> Self {
        let share = if lead.is_nan() {
            0.0
        } else {
            1.0 / (1.0 + (-f64::from(lead)).exp())
        };
        Self {
            share,
            kind: Kind::Lead,
        }
    }

    /// In a token that was drawn, whichever it is: from the probability of the likeliest.
    pub fn of_odds(highest: f64) -> Self {
        Self {
            // Half of what the best token lacks is a modest guess of what two models agree on besides it.
            share: 0.5 + 0.5 * highest.clamp(0.0, 1.0),
            kind: Kind::Odds,
        }
    }

    /// Fine where it matters: near certainty, classes are a factor of chances of failure apart.
    fn class(self) -> usize {
        const PER_OCTAVE: f64 = 2.0;
        let octaves = -(1.0 - self.share).max(1e-9).log2();
        ((octaves * PER_OCTAVE) as usize).min(CLASSES - 1)
    }
}

/// Acceptance of tokens by the drafter's confidence.
#[derive(Debug, Clone, Default)]
pub struct Calibration {
    kinds: [Classes; KINDS],
}

/// Tokens of one kind.
#[derive(Debug, Clone, Default)]
struct Classes {
    classes: [Counts; CLASSES],
    all: Counts,
}

/// Decayed counts.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    tries: f64,
    hits: f64,
}

impl Counts {
    fn push(&mut self, hit: bool) {
        let keep = (-1.0 / HALF_LIFE).exp2();
        self.tries = self.tries * keep + 1.0;
        self.hits = self.hits * keep + f64::from(u8::from(hit));
    }

    fn fade(&mut self) {
        let keep = (-1.0 / HALF_LIFE).exp2();
        self.tries *= keep;
        self.hits *= keep;
    }

    fn share(&self, usual: f64) -> f64 {
        (self.hits + PRIOR * usual) / (self.tries + PRIOR)
    }
}

impl Calibration {
    /// Learns what became of a token all before which were accepted.
    pub fn observe(&mut self, confidence: Confidence, accepted: bool) {
        if let Some(kind) = self.kinds.get_mut(confidence.kind as usize) {
            kind.all.push(accepted);
        }
        if let Some(class) = self.class_mut(confidence) {
            class.push(accepted);
        }
    }

    /// A token was not kept, so nothing will be known of it. Its class slowly forgets: one that is never kept would
    /// else never be tried again.
    pub fn skip(&mut self, confidence: Confidence) {
        if let Some(class) = self.class_mut(confidence) {
            class.fade();
        }
    }

    /// Chance that a token is accepted once it is reached.
    pub fn chance(&self, confidence: Confidence) -> f64 {
        let kind = self.kinds.get(confidence.kind as usize);
        let class = kind.and_then(|kind| kind.classes.get(confidence.class()));
        class.map_or(confidence.share, |class| class.share(confidence.share))
    }

    /// The same for a token of which nothing is known yet, behind one of this confidence.
    pub fn usual(&self, behind: Confidence) -> f64 {
        const BEFORE_ANY: f64 = 0.6;
        let kind = self.kinds.get(behind.kind as usize);
        kind.map_or(BEFORE_ANY, |kind| kind.all.share(BEFORE_ANY))
    }

    fn class_mut(&mut self, confidence: Confidence) -> Option<&mut Counts> {
        let kind = self.kinds.get_mut(confidence.kind as usize)?;
        kind.classes.get_mut(confidence.class())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::simulate::Noise;

    #[test]
    fn a_drafter_that_overrates_itself_is_believed_less() {
        let mut calibration = Calibration::default();
        let mut noise = Noise::new(4);
        let confidence = Confidence::of_lead(2.0);
        assert!(calibration.chance(confidence) > 0.85);
        for _ in 0..2_000 {
            calibration.observe(confidence, noise.uniform() < 0.5);
        }
        let found = calibration.chance(confidence);
        assert!((found - 0.5).abs() < 0.1, "{found}");
        assert!((calibration.usual(confidence) - 0.5).abs() < 0.1);
    }

    #[test]
    fn drawn_tokens_and_chosen_ones_are_counted_apart() {
        let mut calibration = Calibration::default();
        let (chosen, drawn) = (Confidence::of_lead(1.1), Confidence::of_odds(0.5));
        assert_eq!(chosen.class(), drawn.class());
        for _ in 0..200 {
            calibration.observe(chosen, false);
            calibration.observe(drawn, true);
        }
        assert!(calibration.chance(chosen) < 0.1 && calibration.chance(drawn) > 0.9);
        assert!(calibration.usual(chosen) < 0.1 && calibration.usual(drawn) > 0.9);
    }

    proptest! {
        #[test]
        fn more_lead_is_never_a_lower_class(a in -50f32..50.0, b in -50f32..50.0) {
            let (low, high) = (a.min(b), a.max(b));
            prop_assert!(Confidence::of_lead(low).class() <= Confidence::of_lead(high).class());
        }

        #[test]
        fn chances_are_chances(
            seen in proptest::collection::vec((-9f32..9.0, any::<bool>()), 0..200),
            asked in -9f32..9.0,
        ) {
            let mut calibration = Calibration::default();
            for (lead, accepted) in seen {
                calibration.observe(Confidence::of_lead(lead), accepted);
            }
            let chance = calibration.chance(Confidence::of_lead(asked));
            prop_assert!((0.0..=1.0).contains(&chance));
            prop_assert!((0.0..=1.0).contains(&calibration.usual(Confidence::of_lead(asked))));
        }
    }
}
