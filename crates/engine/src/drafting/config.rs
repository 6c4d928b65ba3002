//! Whether to speculate, with what, and by which law.

use speculation::{Drafters, LawSpec};

/// How an engine speculates. Texts never depend on it, only how fast they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpeculationConfig {
    /// Who drafts. `auto` without a draft model only looks up.
    pub drafters: Drafters,
    /// Who decides how deep.
    pub law: LawSpec,
}

impl SpeculationConfig {
    /// Every step gives each sequence one token.
    pub const OFF: Self = Self {
        drafters: Drafters::Off,
        law: LawSpec::Goodput,
    };
}

/// Off: an engine speculates only if it is told to.
impl Default for SpeculationConfig {
    fn default() -> Self {
        Self::OFF
    }
}
