//! The commands, one module each.

mod bench;
mod check;
#[cfg(feature = "engine")]
mod embedded;
#[cfg(not(feature = "engine"))]
#[path = "no_engine.rs"]
mod embedded;
mod engine;
mod error;
mod explain;
mod render;
mod serve;

pub(crate) use bench::bench;
pub(crate) use check::check;
pub(crate) use engine::engine;
pub(crate) use error::CommandError;
pub(crate) use explain::explain;
pub(crate) use render::render;
pub(crate) use serve::serve;
