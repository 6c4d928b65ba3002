//! How easy texts are to guess.

use crate::acceptance::MAX_DEPTH;
use crate::source::Strength;

/// Chances of one drafter for one kind of text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guesses {
    /// Acceptance of the first position.
    pub first: f64,
    /// What each further position has of the one before.
    pub fade: f64,
}

impl Guesses {
    /// Acceptance of a position, once reached.
    pub fn at(&self, position: usize) -> f64 {
        self.first * self.fade.powi(position.min(MAX_DEPTH) as i32)
    }
}

/// A kind of text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Text {
    /// The draft model's chances, where there is one.
    pub model: Option<Guesses>,
    /// Share of the steps in which a lookup finds something.
    pub hits: f64,
    /// How well it matches.
    pub strength: Strength,
    /// The lookups' chances.
    pub lookup: Guesses,
    /// Stretches that the draft model finds harder, where there are any.
    pub hard: Option<Stretches>,
}

/// Easy and hard stretches of one text, in turns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stretches {
    /// Mean tokens of each.
    pub length: f64,
    /// The draft model's chances in the hard ones.
    pub model: Guesses,
}

impl Text {
    /// A story that goes on.
    pub const PROSE: Self = Self {
        model: Some(Guesses {
            first: 0.84,
            fade: 0.985,
        }),
        hits: 0.15,
        strength: Strength::Weak,
        lookup: Guesses {
            first: 0.25,
            fade: 0.9,
        },
        hard: None,
    };

    /// A story with easy and hard stretches, as texts are: most guesses fail in runs. On average like [`Text::PROSE`].
    pub const UNEVEN_PROSE: Self = Self {
        model: Some(Guesses {
            first: 0.95,
            fade: 0.99,
        }),
        hard: Some(Stretches {
            length: 8.0,
            model: Guesses {
                first: 0.55,
                fade: 0.95,
            },
        }),
        hits: 0.0,
        ..Self::PROSE
    };

    /// Answers to questions.
    pub const ANSWERS: Self = Self {
        model: Some(Guesses {
            first: 0.68,
            fade: 0.95,
        }),
        hits: 0.25,
        strength: Strength::Fair,
        lookup: Guesses {
            first: 0.45,
            fade: 0.95,
        },
        hard: None,
    };

    /// A given text, said again.
    pub const COPYING: Self = Self {
        model: Some(Guesses {
            first: 0.7,
            fade: 0.97,
        }),
        hits: 0.9,
        strength: Strength::Strong,
        lookup: Guesses {
            first: 0.95,
            fade: 0.995,
        },
        hard: None,
    };

    /// Guesses that hold often enough to seem worth it, and are not where rows are dear.
    pub const EVEN_ODDS: Self = Self {
        model: Some(Guesses {
            first: 0.6,
            fade: 0.9,
        }),
        hits: 0.0,
        ..Self::ANSWERS
    };

    /// Tokens by chance: nothing can be guessed.
    pub const RANDOM: Self = Self {
        model: Some(Guesses {
            first: 0.06,
            fade: 0.8,
        }),
        hits: 0.05,
        strength: Strength::Weak,
        lookup: Guesses {
            first: 0.02,
            fade: 0.5,
        },
        hard: None,
    };

    /// As measured with vLLM's draft model: 57, 32, 23, 3, 0, 0 of 84 accepted.
    pub const NOISY_DRAFTER: Self = Self {
        model: Some(Guesses {
            first: 0.72,
            fade: 0.82,
        }),
        hits: 0.0,
        strength: Strength::Weak,
        lookup: Guesses {
            first: 0.0,
            fade: 1.0,
        },
        hard: None,
    };

    /// The same text without a draft model.
    pub const fn without_model(self) -> Self {
        Self {
            model: None,
            ..self
        }
    }

    /// The same text where the draft model's first guess holds that often.
    pub fn guessed(self, first: f64) -> Self {
        let model = self.model.map(|model| Guesses { first, ..model });
        Self { model, ..self }
    }

    /// The same text without lookups.
    pub const fn without_lookups(self) -> Self {
        Self { hits: 0.0, ..self }
    }
}
