//! The commands, one module each.

mod engine;
mod error;
mod serve;

pub(crate) use engine::engine;
pub(crate) use error::CommandError;
pub(crate) use serve::serve;
