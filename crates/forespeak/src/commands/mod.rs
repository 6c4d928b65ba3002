//! The commands, one module each.

mod bench;
mod check;
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
