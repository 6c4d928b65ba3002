//! The stages of a request, in the order in which [`crate::pipeline`] calls them. Each is one function
//! from one state to the next, or to a refusal.

mod dispatch;
mod identify;
mod prepare;
mod read;
mod receive;
mod tokenize;
mod validate;

pub(crate) use dispatch::{Dispatched, DispatchedPrompt, dispatch};
pub(crate) use identify::{bearer, identify, require_tenant};
pub(crate) use prepare::{Prepared, SoFar, prepare};
pub(crate) use read::{Read, Server, not_served, read};
pub(crate) use receive::receive;
pub(crate) use tokenize::{encode_conversation, encode_text, tokenize};
pub(crate) use validate::{Form, Shape, require_model, validate};
