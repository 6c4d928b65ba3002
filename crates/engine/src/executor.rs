//! The one door between the step loop and the arithmetic.

use model::{Batch, Logits};

/// Executes a step: reads and writes keys and values through the batch's block tables and gives the
/// logits of the rows that were asked for.
///
/// Contract: the result of a row depends only on its token, its position and the keys and values
/// reachable through its span's table up to that position, never on other rows (batch invariance).
pub trait Executor: Send {
    /// Runs one step.
    fn execute(&mut self, batch: &Batch, logits: &mut Logits) -> Result<(), ExecuteError>;

    /// Number of scores in a row of logits.
    fn vocab_size(&self) -> usize;
}

/// The arithmetic failed; the step's requests are lost, the engine goes on.
#[derive(Debug, thiserror::Error)]
#[error("executing a step failed: {0}")]
pub struct ExecuteError(pub String);
