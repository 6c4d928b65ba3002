//! What `forespeak serve` can be told, and `forespeak engine` with it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::engine::{EngineOptions, ModelOptions, SpeculationOptions};
use super::values::{seconds, size_or_nothing};
use super::workers::FleetOptions;
use crate::size::ByteSize;

#[derive(Debug, Clone, Args)]
pub(crate) struct ServeOptions {
    #[command(flatten)]
    pub(crate) http: HttpOptions,
    #[command(flatten)]
    pub(crate) fleet: FleetOptions,
    #[command(flatten)]
    pub(crate) cache: CacheOptions,
    #[command(flatten)]
    pub(crate) shared: SharedOptions,
    #[command(flatten)]
    pub(crate) model: ModelOptions,
    #[command(flatten)]
    pub(crate) engine: EngineOptions,
    #[command(flatten)]
    pub(crate) speculation: SpeculationOptions,
    #[command(flatten)]
    pub(crate) kv_events: KvEventOptions,
    /// How log lines look
    #[arg(
        long,
        value_enum,
        default_value_t,
        env = "FORESPEAK_LOG_FORMAT",
        help_heading = "Output"
    )]
    pub(crate) log_format: LogFormat,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Network")]
pub(crate) struct HttpOptions {
    /// Where to listen; port 0 takes a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", env = "FORESPEAK_LISTEN")]
    pub(crate) listen: Option<SocketAddr>,
    /// A file with one API key a line; without it everyone who reaches the address may ask
    #[arg(long, value_name = "FILE", env = "FORESPEAK_API_KEY_FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// How long running answers may take to finish after SIGTERM; a second signal ends at once [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, env = "FORESPEAK_DRAIN_TIMEOUT")]
    pub(crate) drain_timeout: Option<Duration>,
    /// Where operators come in, such as 127.0.0.1:8081: workers, decisions, reload, speculation; a worker answers what
    /// concerns its engine [default: off]
    #[arg(long, value_name = "ADDRESS", env = "FORESPEAK_ADMIN_LISTEN")]
    pub(crate) admin_listen: Option<SocketAddr>,
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Response cache (the same question, the same answer, at once)")]
pub(crate) struct CacheOptions {
    /// Where answers are kept: off, memory, or redis://host:6379 to share them between gateways (with
    /// FORESPEAK_CACHE_SECRET set to the same for all) [default: memory; off for `forespeak engine`]
    #[arg(long, value_name = "WHERE", env = "FORESPEAK_CACHE")]
    pub(crate) cache: Option<String>,
    /// Most memory for it, such as 256MiB; 0 with Redis keeps nothing here [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = size_or_nothing, env = "FORESPEAK_CACHE_MEMORY")]
    pub(crate) cache_memory: Option<ByteSize>,
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Other gateways side by side")]
pub(crate) struct SharedOptions {
    /// A Redis through which gateways tell each other which workers are ill, what tenants have used of their limits and
    /// where prompts went: redis://host:6379 (with FORESPEAK_SHARED_SECRET set to the same for all); not for `forespeak engine` [default: off]
    #[arg(long, value_name = "WHERE", env = "FORESPEAK_SHARED")]
    pub(crate) shared: Option<String>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "KV events (vLLM's encoding, over ZMQ)")]
pub(crate) struct KvEventOptions {
    /// Publish changes of the prefix cache, such as tcp://127.0.0.1:5557 [default: off]
    #[arg(long, value_name = "ENDPOINT", env = "FORESPEAK_KV_EVENTS_ENDPOINT")]
    pub(crate) kv_events_endpoint: Option<String>,
    /// Answer listeners that missed some, such as tcp://127.0.0.1:5558
    #[arg(
        long,
        value_name = "ENDPOINT",
        requires = "kv_events_endpoint",
        env = "FORESPEAK_KV_EVENTS_REPLAY_ENDPOINT"
    )]
    pub(crate) kv_events_replay_endpoint: Option<String>,
    /// The topic under which they are published
    #[arg(
        long,
        value_name = "TOPIC",
        default_value = "",
        hide_default_value = true,
        env = "FORESPEAK_KV_EVENTS_TOPIC"
    )]
    pub(crate) kv_events_topic: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    #[default]
    Text,
    /// For machines
    Json,
}
