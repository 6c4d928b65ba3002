//! Between the wire's values and the engine's.

mod finish;
mod kv_event;
mod logprobs;
mod sampling;

pub(crate) use finish::finish;
pub(crate) use kv_event::kv_event_batch;
pub(crate) use logprobs::{chat_logprobs, completion_logprobs, prompt_logprobs};
pub(crate) use sampling::{priority, sampling};
