//! How well a place reads as the text ends.

use crate::source::Strength;

/// Agreement of a place with the end of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match {
    /// How many tokens before it agree, from [`super::MIN_MATCH`] to [`super::MAX_MATCH`].
    pub length: usize,
    /// How many tokens the text has behind it; `usize::MAX` where it stands in another text.
    pub distance: usize,
}

impl Match {
    /// Whether the text goes in circles: it ends with something that it has said twice in a row. Most likely it will say it once
    /// more, however short it is.
    pub fn is_circle(&self) -> bool {
        self.length >= self.distance
    }

    /// Which of several to follow: the longest. A circle counts twice: where a longer match said something else, circles were right
    /// in four cases of five, but for short ones within long copies.
    pub(super) fn rank(&self) -> usize {
        match self.is_circle() {
            true => 2 * self.length,
            false => self.length,
        }
    }

    /// Its class.
    pub fn strength(&self) -> Strength {
        match (self.is_circle(), self.length) {
            (true, ..=4) => Strength::Turn,
            (true, _) => Strength::Circle,
            (false, ..=1) => Strength::Faint,
            (false, 2) => Strength::Weak,
            (false, 3..=4) => Strength::Fair,
            (false, 5..=16) => Strength::Strong,
            (false, _) => Strength::Copy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_as_long_as_it_is_far_and_outranks_what_is_not_longer_than_twice() {
        let turn = Match {
            length: 3,
            distance: 3,
        };
        let further = |length| Match {
            length,
            distance: 40,
        };
        assert_eq!(turn.strength(), Strength::Turn);
        assert_eq!(further(3).strength(), Strength::Fair);
        assert!(turn.rank() >= further(6).rank() && turn.rank() < further(7).rank());
    }
}
