//! What can be said on the command line. Every flag also has a variable, `FORESPEAK_` and its name.

mod examples;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fleet::WorkerUrl;
use routing::Policy;
use speculation::{Drafters, LawSpec};

use crate::size::ByteSize;

/// Serves language models, as OpenAI's clients expect it: on this machine, or from a fleet of workers.
#[derive(Debug, Parser)]
#[command(name = "forespeak", version, arg_required_else_help = true)]
#[command(
    after_help = "Start with `forespeak serve`, then ask it something:\n\n  \
    curl http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \\\n    \
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"What is a Kubernetes Pod?\"}]}'"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer requests: with a model on this machine, or from workers elsewhere
    #[command(after_help = examples::SERVE)]
    Serve(Box<ServeOptions>),
    /// Say whether a configuration and its workers are in order, and what to do if not
    #[command(after_help = examples::CHECK)]
    Check(Box<CheckOptions>),
    /// Say where a request would go, and why there; nothing is sent
    #[command(after_help = examples::EXPLAIN)]
    Explain(Box<ExplainOptions>),
    /// The same engine alone, as a worker for a gateway elsewhere
    #[command(after_help = examples::ENGINE)]
    Engine(Box<ServeOptions>),
    /// Load for a server, and what came of it
    #[command(after_help = examples::BENCH)]
    Bench(Box<bench::Options>),
    /// Print how to start other servers, so that a gateway can make the most of them
    Render {
        #[command(subcommand)]
        target: RenderTarget,
    },
}

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
    /// Where operators come in, such as 127.0.0.1:8081: workers, decisions, reload [default: off]
    #[arg(long, value_name = "ADDRESS", env = "FORESPEAK_ADMIN_LISTEN")]
    pub(crate) admin_listen: Option<SocketAddr>,
}

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
    /// where prompts went: redis://host:6379 (with FORESPEAK_SHARED_SECRET set to the same for all) [default: off]
    #[arg(long, value_name = "WHERE", env = "FORESPEAK_SHARED")]
    pub(crate) shared: Option<String>,
}

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
    /// As whose request [default: the first tenant]
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

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

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelOptions {
    /// A GGUF file or a Hugging Face folder [default: the bundled model]
    #[arg(long, value_name = "PATH", env = "FORESPEAK_MODEL")]
    pub(crate) model: Option<PathBuf>,
    /// The name clients ask for; may be repeated [default: the name of the file or folder]
    #[arg(
        long,
        value_name = "NAME",
        env = "FORESPEAK_SERVED_MODEL_NAME",
        value_delimiter = ','
    )]
    pub(crate) served_model_name: Vec<String>,
    /// Shrink float weights while loading
    #[arg(long, value_enum, value_name = "FORMAT", env = "FORESPEAK_QUANTIZE")]
    pub(crate) quantize: Option<QuantizeTo>,
    /// A Jinja chat template instead of the model's own
    #[arg(long, value_name = "FILE", env = "FORESPEAK_CHAT_TEMPLATE")]
    pub(crate) chat_template: Option<PathBuf>,
    /// Most tokens of prompt and answer together [default: the model's length]
    #[arg(long, value_name = "TOKENS", value_parser = at_least_one, env = "FORESPEAK_MAX_MODEL_LEN")]
    pub(crate) max_model_len: Option<usize>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct EngineOptions {
    /// Threads that compute [default: physical cores]
    #[arg(long, value_name = "N", value_parser = at_least_one, env = "FORESPEAK_THREADS")]
    pub(crate) threads: Option<usize>,
    /// Instructions to compute with [default: the best this CPU has]
    #[arg(long, value_enum, value_name = "TIER", env = "FORESPEAK_TIER")]
    pub(crate) tier: Option<CpuTier>,
    /// Most sequences in one step
    #[arg(long, value_name = "N", default_value = "64", value_parser = at_least_one, env = "FORESPEAK_MAX_NUM_SEQS")]
    pub(crate) max_num_seqs: usize,
    /// Most tokens in one step: smaller keeps streams smooth beside long prompts, larger reads prompts
    /// faster [default: 64 to 512, fewer for larger models]
    #[arg(long, value_name = "TOKENS", value_parser = at_least_one, env = "FORESPEAK_MAX_NUM_BATCHED_TOKENS")]
    pub(crate) max_num_batched_tokens: Option<usize>,
    /// Most requests that wait; one more is answered with 429
    #[arg(long, value_name = "N", default_value = "1024", value_parser = at_least_one, env = "FORESPEAK_MAX_QUEUED")]
    pub(crate) max_queued: usize,
    /// Memory for keys and values, such as 2GiB [default: half of what is free, or what can be used]
    #[arg(long, value_name = "SIZE", env = "FORESPEAK_KV_CACHE_MEMORY")]
    pub(crate) kv_cache_memory: Option<ByteSize>,
    /// How keys and values are stored; int8 takes half the memory and changes answers a little
    #[arg(long, value_enum, default_value_t, env = "FORESPEAK_KV_DTYPE")]
    pub(crate) kv_dtype: KvDtype,
    /// Forget prefixes instead of sharing them between requests
    #[arg(long, env = "FORESPEAK_NO_PREFIX_CACHING")]
    pub(crate) no_prefix_caching: bool,
    /// Where KV blocks go that do not fit into that memory, or that other instances may want; may be repeated, or
    /// separated by semicolons.
    ///
    /// memory:4GiB keeps evicted blocks in this process, disk:PATH on this machine, for a restart too. dir:PATH (a
    /// folder that instances share) and redis://host:6379 get every block as soon as it is computed, so that an
    /// instance that never saw a prompt loads it instead of computing it. Each takes ?size=20GiB as its bound
    /// [10GiB for folders, 1GiB for Redis]. Loading is chosen where it measures faster than computing; a lost or
    /// damaged block costs time, never another text. Instances share blocks only with the same weights, quantisation,
    /// KV type and CPU instructions, and with the same FORESPEAK_KV_STORE_SECRET, if it is set
    #[arg(
        long,
        value_name = "WHERE",
        value_delimiter = ';',
        env = "FORESPEAK_KV_STORE",
        hide_env_values = true
    )]
    pub(crate) kv_store: Vec<String>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Speculation (faster, never another text)")]
pub(crate) struct SpeculationOptions {
    /// A small model that drafts for the other, with the same tokenizer [default: the bundled one for the bundled
    /// model, none for others]
    #[arg(long, value_name = "PATH", env = "FORESPEAK_DRAFT")]
    pub(crate) draft: Option<PathBuf>,
    /// Who drafts: auto (whoever is worth more at the moment), model, ngram (looks up what the text said before) or off
    #[arg(
        long,
        value_name = "WHO",
        default_value = "auto",
        env = "FORESPEAK_DRAFTER"
    )]
    pub(crate) drafter: Drafters,
    /// How deep: goodput follows what it measures, threshold follows acceptance alone, fixed:K is fixed
    #[arg(
        long,
        value_name = "LAW",
        default_value = "goodput",
        env = "FORESPEAK_SPECULATION"
    )]
    pub(crate) speculation: LawSpec,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum QuantizeTo {
    /// 8 bits: hardly distinguishable
    #[value(name = "q8_0")]
    Q8_0,
    /// 4 bits: half the memory again, a little worse
    #[value(name = "q4_k")]
    Q4K,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CpuTier {
    Scalar,
    Avx2,
    Avx512,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum KvDtype {
    #[default]
    F16,
    Int8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    #[default]
    Text,
    /// For machines
    Json,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("it must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

fn size_or_nothing(text: &str) -> Result<ByteSize, String> {
    match text.trim() {
        "0" => Ok(ByteSize(0)),
        text => text.parse().map_err(|error| format!("{error}")),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text
        .trim_end_matches('s')
        .parse()
        .map_err(|error| format!("{error}; write seconds, such as 30"))?;
    Duration::try_from_secs_f64(number).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_people_know_are_understood() {
        let cli = Cli::try_parse_from([
            "forespeak",
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--model",
            "m.gguf",
            "--served-model-name",
            "a,b",
            "--kv-cache-memory",
            "2GiB",
            "--kv-dtype",
            "int8",
            "--quantize",
            "q4_k",
            "--drain-timeout",
            "2.5",
            "--tier",
            "avx2",
            "--draft",
            "d.gguf",
            "--drafter",
            "model",
            "--speculation",
            "fixed:3",
        ])
        .unwrap();
        let Command::Serve(options) = cli.command else {
            panic!("not serve");
        };
        assert_eq!(options.model.served_model_name, ["a", "b"]);
        assert_eq!(options.engine.kv_cache_memory, Some(ByteSize(2 << 30)));
        assert_eq!(options.engine.kv_dtype, KvDtype::Int8);
        assert_eq!(options.model.quantize, Some(QuantizeTo::Q4K));
        assert_eq!(
            options.http.drain_timeout,
            Some(Duration::from_millis(2500))
        );
        assert_eq!(options.engine.tier, Some(CpuTier::Avx2));
        assert_eq!(options.speculation.drafter, Drafters::Model);
        assert_eq!(options.speculation.speculation, LawSpec::Fixed(3));
    }

    #[test]
    fn workers_are_named_one_by_one() {
        let arguments = "forespeak serve --worker http://a:1 --worker http://b:2 --policy lmetric";
        let cli = Cli::try_parse_from(arguments.split(' ')).unwrap();
        let Command::Serve(options) = cli.command else {
            panic!("not serve");
        };
        let urls: Vec<_> = options
            .fleet
            .worker
            .iter()
            .map(WorkerUrl::to_string)
            .collect();
        assert_eq!(urls, ["http://a:1", "http://b:2"]);
        assert_eq!(options.fleet.policy, Some(Policy::Lmetric));
    }

    #[test]
    fn a_cache_may_be_told_to_keep_nothing_in_memory() {
        let arguments = "forespeak serve --cache redis://h --cache-memory 0 --shared redis://h";
        let cli = Cli::try_parse_from(arguments.split(' ')).unwrap();
        let Command::Serve(options) = cli.command else {
            panic!("not serve");
        };
        assert_eq!(options.cache.cache_memory, Some(ByteSize(0)));
        assert_eq!(options.shared.shared.as_deref(), Some("redis://h"));
        let lots = "forespeak serve --cache-memory lots";
        assert!(Cli::try_parse_from(lots.split(' ')).is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        for arguments in [
            ["serve", "--worker", "https://a"],
            ["serve", "--policy", "fit"],
            ["check", "--worker", "a:8000"],
            ["serve", "--threads", "0"],
            ["serve", "--listen", "here"],
            ["serve", "--kv-cache-memory", "lots"],
            ["serve", "--drain-timeout", "-1"],
            ["serve", "--drafter", "crystal-ball"],
            ["serve", "--speculation", "fixed:99"],
        ] {
            let arguments = std::iter::once("forespeak").chain(arguments);
            assert!(Cli::try_parse_from(arguments).is_err());
        }
    }
}
