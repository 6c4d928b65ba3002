//! What `forespeak render` can be told.

use clap::{Args, Subcommand};

use super::examples;

/// What to start.
#[derive(Debug, Subcommand)]
pub(crate) enum RenderTarget {
    /// A vLLM server that tells what its caches hold, and keeps KV blocks beyond its GPU
    #[command(after_help = examples::RENDER_VLLM)]
    Vllm(RenderVllmOptions),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RenderVllmOptions {
    /// The model, as vLLM calls it
    #[arg(long, value_name = "MODEL", default_value = "MODEL")]
    pub(crate) model: String,
    /// Where KV blocks go beyond the GPU: memory:20GiB, with dir:PATH a folder behind it, or lmcache://host:5555, or
    /// mooncake:CONFIG.json; may be repeated [default: nowhere]
    #[arg(long, value_name = "WHERE")]
    pub(crate) kv_store: Vec<String>,
    /// Where it publishes what its caches hold
    #[arg(long, value_name = "ENDPOINT", default_value = "tcp://*:5557")]
    pub(crate) kv_events_endpoint: String,
    /// Where it answers listeners that missed some
    #[arg(long, value_name = "ENDPOINT", default_value = "tcp://*:5558")]
    pub(crate) kv_events_replay_endpoint: String,
    /// Publish nothing; the gateway then goes by what it sent there
    #[arg(long)]
    pub(crate) no_kv_events: bool,
    /// Print JSON instead of a shell command
    #[arg(long)]
    pub(crate) json: bool,
}
