//! Whether to speculate, with what, and by which law.

use speculation::{Decision, Drafters, LawSpec};

/// How an engine speculates. No promise to a request depends on it, only how fast answers come.
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

/// How an engine speculates, and how that goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpeculationStatus {
    /// What was asked for last.
    pub config: SpeculationConfig,
    /// Whether there is a draft model, and it has not failed.
    pub draft_model: bool,
    /// What was decided about the latest step that was planned. While nobody may draft: that there is nothing to.
    pub decision: Option<Decision>,
    /// Drafts verified so far.
    pub drafts: u64,
    /// Tokens in them.
    pub draft_tokens: u64,
    /// Tokens of these that were accepted.
    pub accepted_tokens: u64,
}

/// Off: an engine speculates only if it is told to.
impl Default for SpeculationConfig {
    fn default() -> Self {
        Self::OFF
    }
}
