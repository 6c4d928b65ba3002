//! What `forespeak explain` can be told.

use std::path::PathBuf;

use clap::Args;

use super::workers::FleetOptions;

#[derive(Debug, Args)]
pub(crate) struct ExplainOptions {
    /// The body of the request, as JSON; - reads it from standard input
    #[arg(value_name = "REQUEST")]
    pub(crate) request: PathBuf,
    #[command(flatten)]
    pub(crate) fleet: FleetOptions,
    /// Which pool [default: the one that serves the request's model, or the only one]
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
    /// As whose request [default: the first by name]
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}
