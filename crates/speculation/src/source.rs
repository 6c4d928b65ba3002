//! Where drafts come from.

use std::fmt;
use std::str::FromStr;

use crate::error::ParseError;

/// A kind of draft whose acceptance is counted on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// The draft model.
    Model,
    /// A lookup in earlier tokens, by how well it matched.
    Ngram(Strength),
}

/// Who makes drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrafterKind {
    /// A small model.
    Model,
    /// Lookups in earlier tokens.
    Ngram,
}

impl DrafterKind {
    /// Both of them.
    pub(crate) const ALL: [Self; 2] = [Self::Model, Self::Ngram];
}

/// How much of the text before a lookup agreed with where it was found, and whether the text goes in circles there: a
/// refrain that has just been said twice is said again, whatever its length, where a match of the same length further
/// back is chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Strength {
    /// One token: mostly chance, and worth a row only where rows are nearly free.
    Faint,
    /// Two tokens: often chance.
    Weak,
    /// Three or four tokens.
    Fair,
    /// Five to sixteen tokens: most likely a copy.
    Strong,
    /// More: a copy, of which long drafts are accepted.
    Copy,
    /// Up to four tokens that repeat what stands right before them: a circle that may have begun.
    Turn,
    /// More of them: a text that goes in circles.
    Circle,
}

/// Number of different sources.
pub(crate) const SOURCES: usize = 8;

impl Source {
    /// All of them.
    pub const ALL: [Self; SOURCES] = [
        Self::Model,
        Self::Ngram(Strength::Faint),
        Self::Ngram(Strength::Weak),
        Self::Ngram(Strength::Fair),
        Self::Ngram(Strength::Strong),
        Self::Ngram(Strength::Copy),
        Self::Ngram(Strength::Turn),
        Self::Ngram(Strength::Circle),
    ];

    /// Place in tables over [`Source::ALL`].
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Model => 0,
            Self::Ngram(strength) => 1 + strength as usize,
        }
    }

    /// Acceptance of a position before anything was measured: a modest guess, soon outweighed.
    pub(crate) fn prior(self) -> f64 {
        match self {
            Self::Model => 0.6,
            Self::Ngram(Strength::Faint) => 0.2,
            Self::Ngram(Strength::Weak) => 0.35,
            Self::Ngram(Strength::Fair) => 0.55,
            Self::Ngram(Strength::Strong) => 0.8,
            Self::Ngram(Strength::Copy) => 0.93,
            Self::Ngram(Strength::Turn) => 0.75,
            Self::Ngram(Strength::Circle) => 0.93,
        }
    }

    /// Whose drafts these are.
    pub fn kind(self) -> DrafterKind {
        match self {
            Self::Model => DrafterKind::Model,
            Self::Ngram(_) => DrafterKind::Ngram,
        }
    }

    /// Whether drafting costs passes of a model.
    pub(crate) fn runs_a_model(self) -> bool {
        self.kind() == DrafterKind::Model
    }
}

impl fmt::Display for DrafterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Model => "the draft model",
            Self::Ngram => "the lookup",
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Model => "model",
            Self::Ngram(Strength::Faint) => "n-gram (faint match)",
            Self::Ngram(Strength::Weak) => "n-gram (weak match)",
            Self::Ngram(Strength::Fair) => "n-gram (fair match)",
            Self::Ngram(Strength::Strong) => "n-gram (strong match)",
            Self::Ngram(Strength::Copy) => "n-gram (copy)",
            Self::Ngram(Strength::Turn) => "n-gram (turn)",
            Self::Ngram(Strength::Circle) => "n-gram (circle)",
        })
    }
}

/// Who may draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Drafters {
    /// A lookup where it is worth more than the model's draft, else the model.
    #[default]
    Auto,
    /// Only the draft model.
    Model,
    /// Only lookups.
    Ngram,
    /// None: every step decodes one token.
    Off,
}

impl Drafters {
    /// Whether this one may.
    pub fn allow(self, kind: DrafterKind) -> bool {
        match self {
            Self::Auto => true,
            Self::Model => kind == DrafterKind::Model,
            Self::Ngram => kind == DrafterKind::Ngram,
            Self::Off => false,
        }
    }
}

impl FromStr for Drafters {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "auto" => Ok(Self::Auto),
            "model" => Ok(Self::Model),
            "ngram" => Ok(Self::Ngram),
            "off" => Ok(Self::Off),
            other => Err(ParseError::Drafters(other.to_owned())),
        }
    }
}

impl fmt::Display for Drafters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Model => "model",
            Self::Ngram => "ngram",
            Self::Off => "off",
        })
    }
}
