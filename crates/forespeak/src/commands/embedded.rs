//! The engine in this process, started.

use std::sync::Arc;

use config::Config;
use engine::{
    CpuExecutor, Drafters, Engine, EngineConfig, Executor, Executors, SpeculationConfig,
    blocks_for_memory,
};
use gateway::kv_events::{KvEventsConfig, KvEventsPublisher};
use gateway::tenants::Tenants;
use gateway::{Gateway, ModelCodec, ServedModel};
use model::{BLOCK_TOKENS, KvType, LoadedModel};

use super::error::CommandError;
use crate::banner::{Banner, Role};
use crate::cli::{KvDtype, KvEventOptions, ServeOptions};
use crate::kv_store::{Place, places, sharing};
use crate::load::{Loaded, load};
use crate::machine::available_memory;
use crate::revision::revision;
use crate::size::ByteSize;
use crate::sizing::{KvNeeds, kv_blocks, step_tokens};

/// Batches of KV events that wait for their publisher before the engine drops some.
const KV_EVENT_BUFFER: usize = 4096;

/// Of the KV cache, this much is taken at start: enough for the first ten thousand tokens or so of a small model. The rest
/// is taken as it is used, since most machines that serve have other things to do with half of their memory.
const COMMITTED_BYTES: usize = 64 << 20;

/// An engine that runs, and what to tell of it.
pub(super) struct Own {
    engine: Arc<Engine>,
    model: ServedModel,
    title: String,
    lines: Vec<(&'static str, String)>,
    chats: bool,
    kv_events: KvEventOptions,
}

/// Loads the model that was asked for, by flags or else by the configuration, and starts it.
pub(super) fn start(
    options: &ServeOptions,
    config: &Config,
    role: Role,
) -> Result<Own, CommandError> {
    let mut options = options.clone();
    let section = config.models.iter().find(|model| model.engine.is_some());
    if let Some(section) = section {
        let asked = &mut options.model;
        let path = section
            .engine
            .as_ref()
            .and_then(|engine| engine.path.clone());
        asked.model = asked.model.take().or(path);
        if asked.served_model_name.is_empty() {
            asked.served_model_name = section.names().map(str::to_owned).collect();
        }
        asked.chat_template = asked
            .chat_template
            .take()
            .or_else(|| section.chat_template.clone());
        asked.max_model_len = asked.max_model_len.or(section.max_model_len);
        if options.engine.kv_store.is_empty()
            && let Some(engine) = &section.engine
        {
            options.engine.kv_store.clone_from(&engine.kv_store);
        }
    }
    let places = places(&options.engine.kv_store)?;
    let loaded = load(&options)?;
    start_engine(&options, role, loaded, &places)
}

impl Own {
    /// A gateway in front of it. Its KV events are published for as long as the publisher lives.
    pub(super) async fn gateway(
        self,
        tenants: Tenants,
        banner: &mut Banner,
    ) -> Result<(Gateway, Option<KvEventsPublisher>), CommandError> {
        let publisher = publish_kv_events(&self.kv_events, &self.engine).await?;
        banner.title = self.title;
        banner.lines = self.lines;
        banner.chats = self.chats;
        if let Some(publisher) = &publisher {
            banner
                .lines
                .push(("KV events", publisher.endpoint().to_owned()));
        }
        let worker: Arc<dyn gateway::Worker> = self.engine;
        Ok((Gateway::new(self.model, worker, tenants), publisher))
    }
}

fn start_engine(
    options: &ServeOptions,
    role: Role,
    loaded: Loaded,
    places: &[Place],
) -> Result<Own, CommandError> {
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
    let doing = match role {
        Role::Server => "serves",
        Role::Worker => "is a worker for",
    };
    let mut lines = vec![
        (
            "model",
            format!(
                "{}, {} of weights, {} layers",
                config.architecture.class_name(),
                ByteSize(model.weight_bytes() as u64),
                config.layers
            ),
        ),
        (
            "compute",
            format!(
                "{} threads, {}",
                loaded.compute.threads(),
                loaded.compute.tier()
            ),
        ),
        (
            "KV cache",
            format!(
                "{} tokens in {} ({kv_dtype}), {max_model_len} tokens a request at most",
                num_blocks * BLOCK_TOKENS,
                ByteSize(block_bytes * num_blocks as u64),
            ),
        ),
        ("drafts", drafts(options, loaded.draft.as_ref())),
    ];
    let sharing = sharing(places, options, &loaded.compute, &model.kv_shape(kv_type))?;
    if sharing.is_some() {
        let places: Vec<String> = places.iter().map(ToString::to_string).collect();
        lines.push(("KV store", places.join(", ")));
    }
    let title = format!("{doing} {model_name}");
    let chats = template.is_some();
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
            drafters: options.speculation.drafter,
            law: options.speculation.speculation,
        },
        seed: None,
    };
    let committed = blocks_for_memory(COMMITTED_BYTES, &model.kv_shape(kv_type));
    let executor = |model| {
        CpuExecutor::new(Arc::new(model), num_blocks, kv_type)
            .map(|executor| Box::new(executor.with_committed(committed)) as Box<dyn Executor>)
    };
    let executors = Executors {
        target: executor(model)?,
        draft: loaded
            .draft
            .map(|draft| executor(draft.model))
            .transpose()?,
    };
    let vocabulary = Arc::clone(&tokenizer);
    let engine = Engine::start_sharing(engine_config, executors, vocabulary, sharing)?;
    Ok(Own {
        engine: Arc::new(engine),
        model: ServedModel {
            names,
            revision: revision(options),
            max_model_len,
            codec: Arc::new(ModelCodec::new(tokenizer, template)),
        },
        title,
        lines,
        chats,
        kv_events: options.kv_events.clone(),
    })
}

/// Who drafts, in words.
fn drafts(options: &ServeOptions, draft: Option<&LoadedModel>) -> String {
    let law = options.speculation.speculation;
    let weights = draft.map(|draft| ByteSize(draft.model.weight_bytes() as u64));
    let waiting = weights.map_or(String::new(), |weights| {
        format!("; a draft model waits, {weights} of weights")
    });
    match (options.speculation.drafter, weights) {
        (Drafters::Off, _) => format!("off{waiting}"),
        (Drafters::Ngram, _) | (_, None) => format!("looked up, depth by {law}{waiting}"),
        (who, Some(weights)) => format!("{who}, depth by {law}, {weights} of weights"),
    }
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
