//! A decision, to be shown.

use std::fmt;

/// What was decided about a step and why.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// Mean depth over the sequences.
    pub depth: f64,
    /// The deepest draft.
    pub deepest: usize,
    /// Expected tokens per second over those without speculation; 1 when nothing is known.
    pub speedup: f64,
    /// Why.
    pub reason: Reason,
}

/// Why a depth was chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// There is nobody to draft for, or nobody who can draft.
    NothingToDraft,
    /// No other depth is better by more than the margin, or the last change is too recent.
    Steady,
    /// Deeper drafts give more tokens per second.
    Deeper {
        /// Mean depth before.
        from: f64,
    },
    /// Shallower drafts give more tokens per second.
    Shallower {
        /// Mean depth before.
        from: f64,
    },
    /// No draft pays.
    Off,
    /// The draft model's drafts cost more than they brought, whatever was expected of them: it rests for a while.
    Resting,
    /// One sequence drafts deeper for one step, to see whether it would pay, or at another depth, to see what that costs.
    ProbeDeeper {
        /// Which one.
        sequence: u64,
    },
    /// One step without drafts, to see what it costs.
    ProbeOff,
    /// The depth was given.
    Given,
    /// The mean acceptance lies between the bounds, or the depth is already at one of its own.
    AcceptanceWithin {
        /// Mean acceptance.
        acceptance: f64,
    },
    /// The mean acceptance is above the upper bound.
    AcceptanceHigh {
        /// Mean acceptance.
        acceptance: f64,
    },
    /// The mean acceptance is below the lower bound.
    AcceptanceLow {
        /// Mean acceptance.
        acceptance: f64,
    },
    /// The mean acceptance is so low that drafting stopped.
    AcceptanceTooLow {
        /// Mean acceptance.
        acceptance: f64,
    },
}

impl Reason {
    /// A short name, for a metric's label.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NothingToDraft => "nothing_to_draft",
            Self::Steady => "steady",
            Self::Deeper { .. } => "deeper",
            Self::Shallower { .. } => "shallower",
            Self::Off => "off",
            Self::Resting => "resting",
            Self::ProbeDeeper { .. } => "probe_deeper",
            Self::ProbeOff => "probe_off",
            Self::Given => "given",
            Self::AcceptanceWithin { .. } => "acceptance_within",
            Self::AcceptanceHigh { .. } => "acceptance_high",
            Self::AcceptanceLow { .. } => "acceptance_low",
            Self::AcceptanceTooLow { .. } => "acceptance_too_low",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingToDraft => f.write_str("there is nothing to draft"),
            Self::Steady => f.write_str("no other depth is clearly better"),
            Self::Deeper { from } => {
                write!(f, "deeper than {from:.1} gives more tokens per second")
            }
            Self::Shallower { from } => {
                write!(f, "shallower than {from:.1} gives more tokens per second")
            }
            Self::Off => f.write_str("no draft is worth its cost"),
            Self::Resting => f.write_str("the draft model lost more time than it saved, and rests"),
            Self::ProbeDeeper { sequence } => {
                write!(
                    f,
                    "sequence {sequence} tries a draft of another depth for one step"
                )
            }
            Self::ProbeOff => f.write_str("one step without drafts, to measure its cost"),
            Self::Given => f.write_str("the depth is given"),
            Self::AcceptanceWithin { acceptance } => {
                write!(f, "acceptance {acceptance:.2} calls for no change")
            }
            Self::AcceptanceHigh { acceptance } => {
                write!(f, "acceptance {acceptance:.2} is high: deeper")
            }
            Self::AcceptanceLow { acceptance } => {
                write!(f, "acceptance {acceptance:.2} is low: shallower")
            }
            Self::AcceptanceTooLow { acceptance } => {
                write!(
                    f,
                    "acceptance {acceptance:.2} is too low: off but for probes"
                )
            }
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "depth {:.1} (deepest {}), expected speed-up {:.2}: {}",
            self.depth, self.deepest, self.speedup, self.reason
        )
    }
}

impl Decision {
    /// Of steps for which nobody can draft.
    pub const NOTHING_TO_DRAFT: Self = Self {
        depth: 0.0,
        deepest: 0,
        speedup: 1.0,
        reason: Reason::NothingToDraft,
    };

    pub(crate) fn of(depths: &[usize], speedup: f64, reason: Reason) -> Self {
        Self {
            depth: mean(depths),
            deepest: depths.iter().copied().max().unwrap_or(0),
            speedup,
            reason,
        }
    }
}

pub(super) fn mean(depths: &[usize]) -> f64 {
    depths.iter().sum::<usize>() as f64 / depths.len().max(1) as f64
}
