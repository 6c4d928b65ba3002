//! Pools, from what was said.

use std::sync::Arc;
use std::time::Duration;

use config::{Config, Events, Model, Secret};
use fleet::registry::RegistryConfig;
use fleet::scrape::ScrapeConfig;
use fleet::{DnsSource, EventsSpec, FleetConfig, FleetError, WorkerSpec, WorkerUrl};
use gateway::placement::{Hook, PlacementMetrics, PoolConfig, RecyclingConfig};
use gateway::{Codec, FleetModel, ModelCodec, RelayTimeouts, RetryLimits};
use model::Language;
use routing::admission::{Patience, QueueLimits, UsageLimits};

use crate::commands::CommandError;

/// The model that a pool serves: the one that names it, or one whose names are to be learnt.
pub(crate) fn model_of(config: &Config, pool: &config::Pool) -> Model {
    let names_it = |model: &&Model| model.pool.as_deref() == Some(&pool.name);
    config
        .models
        .iter()
        .find(names_it)
        .cloned()
        .unwrap_or_else(|| Model {
            pool: Some(pool.name.clone()),
            ..Model::default()
        })
}

/// The language of a model, if its files are here.
pub(crate) fn codec_of(model: &Model) -> Result<Option<Arc<dyn Codec>>, CommandError> {
    let Some(path) = &model.tokenizer else {
        return Ok(None);
    };
    let template = model
        .chat_template
        .as_ref()
        .map(|path| {
            std::fs::read_to_string(path).map_err(|source| CommandError::ReadTemplate {
                path: path.clone(),
                source,
            })
        })
        .transpose()?;
    let language = Language::load(path, template.as_deref())?;
    let codec = ModelCodec::new(language.tokenizer, language.template);
    Ok(Some(Arc::new(codec)))
}

/// All workers of a pool as they are now, or why some cannot be known: what the section lists, names in DNS, the file.
pub(crate) async fn workers_now(
    pool: &config::Pool,
) -> Vec<Result<WorkerSpec, (String, FleetError)>> {
    let mut found: Vec<Result<WorkerSpec, (String, FleetError)>> = Vec::new();
    for section in &pool.workers {
        let spec = worker_spec(section, &pool.name);
        found.push(spec.map_err(|error| (section.url.clone(), error)));
    }
    for section in &pool.dns {
        let resolved = match dns(section, &pool.name) {
            Ok(source) => source.resolve().await,
            Err(error) => Err(error),
        };
        match resolved {
            Ok(specs) => found.extend(specs.into_iter().map(Ok)),
            Err(error) => found.push(Err((section.url.clone(), error))),
        }
    }
    if let Some(path) = &pool.file {
        let path = path.display().to_string();
        match fleet::read_worker_file(&path, &pool.name).await {
            Ok(specs) => {
                let ours = specs.into_iter().filter(|spec| spec.pool == pool.name);
                found.extend(ours.map(Ok));
            }
            Err(error) => found.push(Err((path, error))),
        }
    }
    found
}

/// The workers that a section lists.
pub(super) fn workers(pool: &config::Pool) -> Result<Vec<WorkerSpec>, FleetError> {
    pool.workers
        .iter()
        .map(|worker| worker_spec(worker, &pool.name))
        .collect()
}

pub(crate) fn worker_spec(worker: &config::Worker, pool: &str) -> Result<WorkerSpec, FleetError> {
    let mut spec = WorkerSpec::new(WorkerUrl::parse(&worker.url)?);
    spec.name.clone_from(&worker.name);
    pool.clone_into(&mut spec.pool);
    spec.events = worker.events.as_ref().map(events);
    spec.api_key = worker.api_key.as_ref().and_then(secret);
    if let Some(path) = &worker.health_path {
        spec.health_path.clone_from(path);
    }
    if let Some(path) = &worker.metrics_path {
        spec.metrics_path.clone_from(path);
    }
    spec.check()?;
    Ok(spec)
}

fn dns(dns: &config::Dns, pool: &str) -> Result<DnsSource, FleetError> {
    let template = config::Worker {
        url: dns.url.clone(),
        name: None,
        api_key: dns.api_key.clone(),
        events: dns.events.clone(),
        health_path: dns.health_path.clone(),
        metrics_path: dns.metrics_path.clone(),
    };
    Ok(DnsSource {
        template: worker_spec(&template, pool)?,
        every: dns.every.into(),
    })
}

fn events(events: &Events) -> EventsSpec {
    EventsSpec {
        endpoint: events.endpoint.clone(),
        replay: events.replay.clone(),
        topic: events.topic.clone(),
        ranks: events.ranks,
    }
}

fn secret(secret: &Secret) -> Option<fleet::Secret> {
    secret.reveal().map(fleet::Secret::new)
}

/// Everything that a pool is started with.
pub(crate) fn pool_config(
    pool: &config::Pool,
    metrics: &PlacementMetrics,
) -> Result<PoolConfig, FleetError> {
    let mut registry = RegistryConfig {
        drain_at_most: pool.drain_timeout.into(),
        ..RegistryConfig::default()
    };
    registry.health.stale_after = pool.health.stale_after.into();
    registry.health.wedged_after = pool.health.wedged_after.into();
    registry.health.slow_start = pool.health.slow_start.into();
    let fleet = FleetConfig {
        registry,
        scrape: ScrapeConfig {
            scrape_every: pool.scrape_every.into(),
            scrape_timeout: pool.scrape_timeout.into(),
            probe_every: pool.probe_every.into(),
            ..ScrapeConfig::default()
        },
        workers: workers(pool)?,
        file: pool.file.as_ref().map(|path| path.display().to_string()),
        file_pool: pool.name.clone(),
        dns: pool
            .dns
            .iter()
            .map(|source| dns(source, &pool.name))
            .collect::<Result<_, _>>()?,
        ..FleetConfig::default()
    };
    let patience = &pool.admission.patience;
    let mut settings = PoolConfig::new(&pool.name, fleet);
    settings.policy = pool.policy;
    settings.patience = Patience {
        low: patience.low.into(),
        normal: patience.normal.into(),
        high: patience.high.into(),
    };
    settings.usage_limits = UsageLimits {
        low: pool.admission.low_up_to,
        normal: pool.admission.normal_up_to,
    };
    settings.queue = QueueLimits {
        requests: pool.admission.queue,
        per_tenant: pool.admission.queue_per_tenant,
    };
    settings.block_tokens = pool.block_tokens;
    settings.index_bytes = pool.index_bytes;
    settings.loadable_worth = routing::index::LoadableWorth {
        host: pool.loadable.host,
        storage: pool.loadable.storage,
        shared: pool.loadable.shared,
    };
    settings.recycling = pool.recycling.as_ref().and_then(recycling);
    settings.metrics = metrics.clone();
    Ok(settings)
}

/// Its hook was checked when the file was read.
fn recycling(recycling: &config::Recycling) -> Option<RecyclingConfig> {
    let hook = match &recycling.hook.url {
        Some(url) => Hook::Http(url.parse().ok()?),
        None => Hook::Command(recycling.hook.command.clone()),
    };
    Some(RecyclingConfig {
        rules: fleet::recycle::RecycleConfig {
            drift: recycling.drift,
            drift_for: recycling.drift_for.into(),
            wedged_for: recycling.wedged_for.into(),
            pause: recycling.pause.into(),
            keep_healthy: recycling.keep_healthy,
            drain_at_most: recycling.drain_timeout.into(),
            absent_at_most: recycling.absent_at_most.into(),
            ..fleet::recycle::RecycleConfig::default()
        },
        hook,
    })
}

pub(super) fn timeouts(timeouts: &config::Timeouts) -> RelayTimeouts {
    let time = |time: config::Time| -> Duration { time.into() };
    RelayTimeouts {
        connect: time(timeouts.connect),
        first_byte: time(timeouts.first_token),
        between: time(timeouts.between_tokens),
        buffer: time(timeouts.total_buffer),
        shortest_total: time(timeouts.total_at_least),
        longest_total: time(timeouts.total_at_most),
    }
}

/// What is served under the names that were given, or else learnt; `None` while there are none.
pub(super) fn fleet_model(
    settings: &config::Pool,
    model: &Model,
    learnt: &super::Learnt,
    pool: &Arc<gateway::placement::Pool>,
) -> Option<FleetModel> {
    let mut names: Vec<String> = model.names().map(str::to_owned).collect();
    let named = !names.is_empty();
    if !named {
        names.clone_from(&learnt.names);
    }
    let first = names.first()?;
    let retries = &settings.retries;
    let mut served = FleetModel::new(first, Arc::clone(pool)).with_retries(RetryLimits {
        share: retries.share,
        at_start: retries.at_start,
        at_most: retries.at_most,
    });
    served.revision.clone_from(&model.revision);
    // What the workers call it was said, or is its own name if they know it, or the first of theirs.
    let theirs = match &model.served_as {
        Some(name) => name,
        None if learnt.names.contains(first) => first,
        None => learnt.names.first().unwrap_or(first),
    };
    let all_theirs = !named || names.iter().all(|name| name == theirs);
    served.upstream_name = (!all_theirs).then(|| theirs.clone());
    served.names = names;
    served.adapters = match model.loras.as_slice() {
        [] if !named => learnt.adapters.clone(),
        loras => loras.to_vec(),
    };
    served.max_model_len = model.max_model_len.or(learnt.max_model_len);
    served.forwards_priority = settings.forwards_priority;
    served.timeouts = timeouts(&settings.timeouts);
    Some(served)
}
