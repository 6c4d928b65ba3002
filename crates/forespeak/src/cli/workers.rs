//! Which workers elsewhere, for every command that asks them something.

use std::path::PathBuf;

use clap::Args;
use fleet::WorkerUrl;
use routing::Policy;

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Workers elsewhere (instead of a model here)")]
pub(crate) struct FleetOptions {
    /// A configuration file; flags beside it win. SIGHUP reads it again
    #[arg(long, value_name = "FILE", env = "FORESPEAK_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// The address of a worker, such as http://10.0.0.1:8000; may be repeated
    #[arg(
        long,
        value_name = "URL",
        value_delimiter = ',',
        conflicts_with = "config",
        env = "FORESPEAK_WORKER"
    )]
    pub(crate) worker: Vec<WorkerUrl>,
    /// How a worker is chosen: round_robin, least_loaded, sticky, prefix, lmetric or fit [default: fit]
    #[arg(
        long,
        value_name = "NAME",
        requires = "worker",
        env = "FORESPEAK_POLICY"
    )]
    pub(crate) policy: Option<Policy>,
    /// The workers' tokenizer and chat template: a Hugging Face folder, its tokenizer.json, or a GGUF file. Without it
    /// prompts are compared as text
    #[arg(
        long,
        value_name = "PATH",
        requires = "worker",
        env = "FORESPEAK_TOKENIZER"
    )]
    pub(crate) tokenizer: Option<PathBuf>,
    /// Where each worker publishes its KV events, such as tcp://{host}:5557; {host} stands for the worker's host
    #[arg(
        long,
        value_name = "ENDPOINT",
        requires = "worker",
        env = "FORESPEAK_WORKER_KV_EVENTS"
    )]
    pub(crate) worker_kv_events: Option<String>,
    /// Where each worker repeats the KV events that were missed, such as tcp://{host}:5558 [default: nowhere; what is missed
    /// costs all that is known of the worker's cache]
    #[arg(
        long,
        value_name = "ENDPOINT",
        requires = "worker_kv_events",
        env = "FORESPEAK_WORKER_KV_REPLAY"
    )]
    pub(crate) worker_kv_replay: Option<String>,
}
