//! The commands, one module each.

mod bench;
#[cfg(feature = "engine")]
mod engine;
#[cfg(feature = "engine")]
mod error;
#[cfg(feature = "engine")]
mod serve;

pub(crate) use bench::bench;
#[cfg(feature = "engine")]
pub(crate) use engine::engine;
#[cfg(feature = "engine")]
pub(crate) use error::CommandError;
#[cfg(feature = "engine")]
pub(crate) use serve::serve;
