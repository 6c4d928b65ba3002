//! `forespeak serve`: load a model and answer requests.

use std::io::Write;
use std::sync::Arc;

use engine::{CpuExecutor, Drafters, Engine, EngineConfig, Executor, Executors, SpeculationConfig};
use gateway::kv_events::{KvEventsConfig, KvEventsPublisher};
use gateway::tenants::{SaltSecret, Tenants, read_key_file};
use gateway::{Gateway, ModelCodec, ServedModel, Server, ServerConfig, StopSwitch};
use model::{BLOCK_TOKENS, KvType};

use super::error::CommandError;
use crate::banner::{Banner, Role};
use crate::cli::{KvDtype, KvEventOptions, ServeOptions};
use crate::load::{Loaded, load};
use crate::machine::available_memory;
use crate::signals::pull_on_signals;
use crate::size::ByteSize;
use crate::sizing::{KvNeeds, kv_blocks, step_tokens};
use crate::status_line;

/// Threads that carry connections. One writes far more than the engine can generate; the cores belong
/// to the arithmetic.
const NETWORK_THREADS: usize = 1;

/// Threads for long prompts and schemas; more would take too much from the engine at once.
const BLOCKING_THREADS: usize = 4;

/// Batches of KV events that wait for their publisher before the engine drops some.
const KV_EVENT_BUFFER: usize = 4096;

pub(crate) fn serve(options: &ServeOptions) -> Result<(), CommandError> {
    run(options, Role::Server)
}

pub(super) fn run(options: &ServeOptions, role: Role) -> Result<(), CommandError> {
    let secret = SaltSecret::random();
    let tenants = match (&options.http.api_key_file, role) {
        (Some(path), _) => Tenants::with_keys(read_key_file(path)?, &secret),
        (None, Role::Server) => Tenants::open(&secret),
        (None, Role::Worker) => Tenants::of_a_worker(),
    };
    let loaded = load(options)?;
    let started = start_engine(options, role, loaded)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(NETWORK_THREADS)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("network")
        .enable_all()
        .build()?;
    let served = runtime.block_on(answer(options, tenants, started));
    // What was to be finished is finished. A step that still computes for a client who is gone must
    // not hold up the end.
    runtime.shutdown_background();
    served
}

/// An engine that runs, and what to tell of it.
struct Started {
    engine: Arc<Engine>,
    model: ServedModel,
    banner: Banner,
}

fn start_engine(
    options: &ServeOptions,
    role: Role,
    loaded: Loaded,
) -> Result<Started, CommandError> {
    let config = loaded.model.config().clone();
    let max_model_len = match options.model.max_model_len {
        Some(asked) if asked > config.context_length => {
            return Err(CommandError::TooLong {
                asked,
                limit: config.context_length,
            });
        }
        Some(asked) => asked,
        None => config.context_length,
    };
    let (kv_type, kv_dtype) = match options.engine.kv_dtype {
        KvDtype::F16 => (KvType::F16, "f16"),
        KvDtype::Int8 => (KvType::Int8, "int8"),
    };
    // A block has room for the keys and values of both models.
    let shapes = std::iter::once(&loaded.model).chain(&loaded.draft);
    let block_bytes = shapes
        .map(|loaded| loaded.model.kv_shape(kv_type).block_bytes() as u64)
        .sum();
    let num_blocks = kv_blocks(
        KvNeeds {
            block_bytes,
            block_tokens: BLOCK_TOKENS,
            max_model_len,
            max_num_seqs: options.engine.max_num_seqs,
        },
        options.engine.kv_cache_memory,
        available_memory(),
    )?;
    let mut names = options.model.served_model_name.clone();
    if names.is_empty() {
        names.push(loaded.name);
    }
    let model_name = names.first().cloned().unwrap_or_default();
    let (model, tokenizer, template) = loaded.model.into_parts();
    let banner = Banner {
        role,
        model_name: model_name.clone(),
        model_summary: format!(
            "{}, {} of weights, {} layers",
            config.architecture.class_name(),
            ByteSize(model.weight_bytes() as u64),
            config.layers
        ),
        compute: format!(
            "{} threads, {}",
            loaded.compute.threads(),
            loaded.compute.tier()
        ),
        kv_tokens: num_blocks * BLOCK_TOKENS,
        kv_bytes: ByteSize(block_bytes * num_blocks as u64),
        kv_dtype,
        max_model_len,
        address: options.http.listen,
        needs_key: options.http.api_key_file.is_some(),
        chats: template.is_some(),
        kv_events: None,
        drafts: match (options.speculation.drafters(), &loaded.draft) {
            (Drafters::Off, _) => "off".to_owned(),
            (_, None) => format!("looked up, depth by {}", options.speculation.speculation),
            (who, Some(draft)) => format!(
                "{who}, depth by {}, {} of weights",
                options.speculation.speculation,
                ByteSize(draft.model.weight_bytes() as u64)
            ),
        },
    };
    let publishes = options.kv_events.kv_events_endpoint.is_some();
    let engine_config = EngineConfig {
        model_name,
        max_model_len,
        num_blocks,
        max_num_seqs: options.engine.max_num_seqs,
        max_num_batched_tokens: options
            .engine
            .max_num_batched_tokens
            .unwrap_or_else(|| step_tokens(config.weights_a_token()))
            .max(options.engine.max_num_seqs),
        max_queued: options.engine.max_queued,
        enable_prefix_caching: !options.engine.no_prefix_caching,
        kv_event_buffer: if publishes { KV_EVENT_BUFFER } else { 0 },
        cache_dtype: kv_dtype.to_owned(),
        speculation: SpeculationConfig {
            drafters: options.speculation.drafters(),
            law: options.speculation.speculation,
        },
    };
    let executor = |model| {
        CpuExecutor::new(Arc::new(model), num_blocks, kv_type)
            .map(|executor| Box::new(executor) as Box<dyn Executor>)
    };
    let executors = Executors {
        target: executor(model)?,
        draft: loaded
            .draft
            .map(|draft| executor(draft.model))
            .transpose()?,
    };
    let vocabulary = Arc::clone(&tokenizer);
    let engine = Engine::start(engine_config, executors, vocabulary)?;
    Ok(Started {
        engine: Arc::new(engine),
        model: ServedModel {
            names,
            max_model_len,
            codec: Arc::new(ModelCodec::new(tokenizer, template)),
        },
        banner,
    })
}

async fn answer(
    options: &ServeOptions,
    tenants: Tenants,
    started: Started,
) -> Result<(), CommandError> {
    let mut banner = started.banner;
    let publisher = publish_kv_events(&options.kv_events, &started.engine).await?;
    let worker: Arc<dyn gateway::Worker> = started.engine;
    let gateway = Arc::new(Gateway::new(started.model, worker, tenants));
    let config = ServerConfig {
        listen: options.http.listen,
        drain_timeout: options.http.drain_timeout,
        ..ServerConfig::default()
    };
    let server = Server::bind(config, Arc::clone(&gateway))?;
    banner.address = server.address();
    banner.kv_events = publisher
        .as_ref()
        .map(|publisher| publisher.endpoint().to_owned());

    let stop = StopSwitch::new();
    pull_on_signals(stop.clone())?;
    let status = tokio::spawn(status_line::report(gateway));
    // Without anyone to read it there is nobody to tell.
    let _ = writeln!(std::io::stdout(), "{banner}");
    server.run(stop).await;
    status.abort();
    Ok(())
}

async fn publish_kv_events(
    options: &KvEventOptions,
    engine: &Engine,
) -> Result<Option<KvEventsPublisher>, CommandError> {
    let Some((endpoint, changes)) = options.kv_events_endpoint.clone().zip(engine.kv_events())
    else {
        return Ok(None);
    };
    let config = KvEventsConfig {
        endpoint,
        replay_endpoint: options.kv_events_replay_endpoint.clone(),
        topic: options.kv_events_topic.clone(),
    };
    Ok(Some(KvEventsPublisher::start(config, changes).await?))
}
