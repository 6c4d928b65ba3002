//! `forespeak explain`: where a request would go, and why there.
//!
//! The workers are asked once, nothing is sent to them. What they have cached is known as far as they
//! publish KV events that can be replayed; a running gateway knows more, and tells it at its admin endpoint.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use config::Config;
use gateway::placement::{
    Ask, Explained, PlacementMetrics, Pool, PoolReport, PromptSpans, WorkerReport,
};
use gateway::tenants::{SaltSecret, Tenant, Tenants};
use protocol::limits::MAX_BODY_BYTES;
use protocol::survey::Survey;
use tokio::time::{Instant, sleep};

use super::error::CommandError;
use crate::cli::ExplainOptions;
use crate::settings::fleet_settings;
use crate::wiring::{codec_of, model_of, pool_config, salt_secret, tenants};

/// How long workers may take to tell how they are.
const SEEN_WITHIN: Duration = Duration::from_secs(3);

/// How often it is looked whether they have.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long replayed KV events may go on coming in before what is known is shown.
const EVENTS_SETTLE: Duration = Duration::from_millis(300);

pub(crate) fn explain(options: &ExplainOptions) -> Result<(), CommandError> {
    let body = Bytes::from(read(&options.request)?);
    let survey = Survey::read(&body).map_err(|error| refuse(error.message()))?;
    let config = fleet_settings(&options.fleet)?;
    let section = section(&config, options.pool.as_deref(), survey.model.as_deref())?;
    let tenants = tenants(
        &config,
        &salt_secret(&config, &SaltSecret::random()),
        &Tenants::default(),
    )?;
    let tenant = tenant(&tenants, options.tenant.as_deref())?;
    let model = model_of(&config, section);
    let codec = codec_of(&model)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let explained = runtime.block_on(async {
        let pool = Pool::start(pool_config(section, &PlacementMetrics::default())?, codec)?;
        let ask = ask(&tenant, &survey, body);
        all_seen(&pool).await;
        Ok::<Explained, CommandError>(pool.explain(&ask).await)
    })?;
    // Without anyone to read it there is nobody to tell.
    let _ = if options.json {
        let shown = serde_json::to_string_pretty(&explained).unwrap_or_default();
        writeln!(std::io::stdout(), "{shown}")
    } else {
        writeln!(std::io::stdout(), "{explained}")
    };
    Ok(())
}

fn ask(tenant: &Tenant, survey: &Survey, body: Bytes) -> Ask {
    let prompt = if survey.has("messages") {
        PromptSpans::chat(survey, &body)
    } else {
        PromptSpans::completion(survey, &body)
    };
    let salt = tenant.cache_salt(survey.cache_salt.as_deref());
    Ask {
        tenant: Arc::clone(&tenant.name),
        salt: salt.unwrap_or_default(),
        lora: None,
        prompt,
        body,
        max_tokens: survey.max_tokens,
        answers: u32::try_from(survey.n.max(1)).unwrap_or(u32::MAX),
        priority: tenant.priority(None),
        session: None,
        deadline: Instant::now() + SEEN_WITHIN,
    }
}

/// Waits until every worker was seen or found missing, but not for ever.
async fn all_seen(pool: &Pool) {
    let settled = |worker: &WorkerReport| match worker.condition {
        "starting" => false,
        "healthy" => worker.metrics_age.is_some(),
        _ => true,
    };
    let until = Instant::now() + SEEN_WITHIN;
    while Instant::now() < until && !pool.report().workers.iter().all(settled) {
        sleep(LOOK_EVERY).await;
    }
    let blocks = |report: PoolReport| report.index.blocks;
    let publishes = |worker: &Arc<fleet::Worker>| worker.spec().events.is_some();
    if pool.snapshot().workers().iter().any(publishes) {
        let mut before = None;
        while Instant::now() < until && before != Some(blocks(pool.report())) {
            before = Some(blocks(pool.report()));
            sleep(EVENTS_SETTLE).await;
        }
    }
}

/// The pool that was named, or serves the model, or is the only one.
fn section<'a>(
    config: &'a Config,
    pool: Option<&str>,
    model: Option<&str>,
) -> Result<&'a config::Pool, CommandError> {
    let serves = |section: &&config::Pool| {
        let served = model_of(config, section);
        model.is_some_and(|name| served.names().any(|known| known == name))
    };
    let found = match (pool, config.pools.as_slice()) {
        (Some(name), pools) => pools.iter().find(|section| section.name == name),
        (None, [only]) => Some(only),
        (None, pools) => pools.iter().find(serves),
    };
    found.ok_or_else(|| {
        refuse("no pool serves this request; name workers with --worker, a file with --config, or a pool with --pool")
    })
}

fn tenant(tenants: &Tenants, name: Option<&str>) -> Result<Arc<Tenant>, CommandError> {
    let found = match name {
        Some(name) => tenants.get(name),
        None => tenants.iter().next(),
    };
    found
        .cloned()
        .ok_or_else(|| refuse("there is no such tenant"))
}

fn read(path: &Path) -> Result<Vec<u8>, CommandError> {
    let mut body = Vec::new();
    let limit = MAX_BODY_BYTES as u64 + 1;
    if path.as_os_str() == "-" {
        std::io::stdin().take(limit).read_to_end(&mut body)?;
    } else {
        let cannot = |source| CommandError::ReadRequest {
            path: path.to_owned(),
            source,
        };
        let file = std::fs::File::open(path).map_err(cannot)?;
        file.take(limit).read_to_end(&mut body).map_err(cannot)?;
    }
    if body.len() > MAX_BODY_BYTES {
        return Err(refuse(&format!("it is larger than {MAX_BODY_BYTES} bytes")));
    }
    Ok(body)
}

fn refuse(why: &str) -> CommandError {
    CommandError::Request {
        why: why.to_owned(),
    }
}
