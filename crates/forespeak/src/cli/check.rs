//! What `forespeak check` can be told.

use std::path::PathBuf;

use clap::Args;

use super::workers::FleetOptions;

#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    #[command(flatten)]
    pub(crate) fleet: FleetOptions,
    /// Print the JSON schema of the configuration file, and nothing else
    #[arg(long, conflicts_with_all = ["config", "worker", "example"])]
    pub(crate) schema: bool,
    /// Print a configuration file to begin with, and nothing else
    #[arg(long, conflicts_with_all = ["config", "worker"])]
    pub(crate) example: bool,
    /// A model whose tokenizer is to be compared with that of --draft
    #[arg(long, value_name = "PATH", requires = "draft")]
    pub(crate) model: Option<PathBuf>,
    /// A model that is to draft for --model
    #[arg(long, value_name = "PATH", requires = "model")]
    pub(crate) draft: Option<PathBuf>,
}
