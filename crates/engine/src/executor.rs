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

    /// Bytes of one block's keys and values; `None` if it cannot give them away.
    fn block_bytes(&self) -> Option<usize> {
        None
    }

    /// Appends a block's keys and values to `out`: as many bytes as [`Executor::block_bytes`] says.
    fn export(&self, _block: u32, _out: &mut Vec<u8>) {}

    /// Overwrites a block with what an executor of the same model exported.
    fn import(&mut self, _block: u32, _bytes: &[u8]) -> Result<(), ExecuteError> {
        Err(ExecuteError("blocks cannot be loaded here".to_owned()))
    }

    /// Longest sequence that it can compute.
    fn context_length(&self) -> usize {
        usize::MAX
    }
}

/// Who computes an engine's steps: a model, and perhaps a small one that drafts for it.
pub struct Executors {
    /// Its scores decide.
    pub target: Box<dyn Executor>,
    /// Its guesses are verified. It has room for as many KV blocks as the target.
    pub draft: Option<Box<dyn Executor>>,
}

impl<E: Executor + 'static> From<Box<E>> for Executors {
    fn from(target: Box<E>) -> Self {
        Self {
            target,
            draft: None,
        }
    }
}

impl From<Box<dyn Executor>> for Executors {
    fn from(target: Box<dyn Executor>) -> Self {
        Self {
            target,
            draft: None,
        }
    }
}

/// The arithmetic failed; the step's requests are lost, the engine goes on.
#[derive(Debug, thiserror::Error)]
#[error("executing a step failed: {0}")]
pub struct ExecuteError(pub String);
