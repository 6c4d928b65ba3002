//! `/tokenize` and `/detokenize`, in vLLM's shapes.

mod types;
mod validate;

pub use types::{DetokenizeAnswer, DetokenizeRequest, TokenizeAnswer, TokenizeRequest};
pub use validate::{TokenizeInput, ValidTokenize};
