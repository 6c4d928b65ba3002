//! What can be wrong with an input.

use thiserror::Error;

/// Why a simulation could not be set up.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SimulatorError {
    /// A kind of worker that does not exist.
    #[error("there is no kind of worker {name:?}: use a100-8b, h100-8b, h100-70b-tp4 or l40s-8b")]
    UnknownKind {
        /// What was asked for.
        name: String,
    },
    /// A trace has a line that is not a request.
    #[error("line {line} of the trace is not a request: {reason}")]
    TraceLine {
        /// Its number, from 1.
        line: usize,
        /// What the parser said.
        reason: String,
    },
}
