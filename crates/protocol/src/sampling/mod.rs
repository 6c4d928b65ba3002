//! How tokens are chosen and when an answer ends: the part that chat and completions share.

mod types;
mod validate;

pub use types::{Drafter, SamplingFields};
pub(crate) use validate::top_logprobs;
pub use validate::{Priority, Sampling};
