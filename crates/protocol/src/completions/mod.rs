//! `/v1/completions`.

mod answer;
mod chunk;
mod prompt;
mod types;
mod validate;

pub use answer::{CompletionAnswer, CompletionChoice};
pub use chunk::{CompletionChunks, CompletionPiece};
pub use prompt::Prompt;
pub use types::CompletionRequest;
pub use validate::ValidCompletion;

/// The name of every id made for this route starts so.
pub const ID_PREFIX: &str = "cmpl-";
