//! Answers requests: with a model in this process, from workers elsewhere, or both.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::Config;
use gateway::admin::{AdminConfig, AdminServer, Operations};
use gateway::tenants::{KeyHash, SaltSecret, Tenants};
use gateway::{Catalog, Gateway, Server, ServerConfig, StopSwitch};

use super::embedded;
use super::error::CommandError;
use crate::banner::{Banner, Role};
use crate::cli::ServeOptions;
use crate::machine::prefer_small_pages;
use crate::settings::settings;
use crate::signals::{pull_on_signals, reload_on_hangup};
use crate::status_line;
use crate::wiring::{Alone, Live, open_cache, prices, salt_secret, sharing, tenants};

/// Threads that carry connections beside an engine. One writes far more than the engine can generate; the cores
/// belong to the arithmetic.
const THREADS_BESIDE_ENGINE: usize = 1;

/// Threads for long prompts and schemas; more would take too much from the others at once.
const BLOCKING_THREADS: usize = 4;

/// How long the start waits for workers to say what they serve, so that the first line can tell.
const NAMES_WITHIN: Duration = Duration::from_secs(3);

/// How often they are looked for meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(crate) fn serve(options: Box<ServeOptions>) -> Result<(), CommandError> {
    run(options, Role::Server)
}

pub(super) fn run(options: Box<ServeOptions>, role: Role) -> Result<(), CommandError> {
    let mut config = settings(&options)?;
    if role == Role::Worker && options.cache.cache.is_none() {
        // Whoever stands in front of a worker has a cache of its own.
        config::Cache::OFF.clone_into(&mut config.cache.store);
    }
    let beside_engine = needs_engine(&config);
    if !beside_engine {
        prefer_small_pages();
    }
    let made_up = SaltSecret::random();
    let tenants = match role {
        Role::Worker if config.server.api_key_file.is_none() => Tenants::of_a_worker(),
        _ => tenants(
            &config,
            &salt_secret(&config, &made_up),
            &Tenants::default(),
        )?,
    };
    let own = if beside_engine {
        Some(embedded::start(&options, &config, role)?)
    } else {
        None
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(match lanes(&config) {
            0 => config.server.threads.max(THREADS_BESIDE_ENGINE),
            // Only what watches the fleet is left to it.
            _ => 1,
        })
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("network")
        .enable_all()
        .build()?;
    let served = runtime.block_on(answer(options, config, role, tenants, made_up, own));
    // What was to be finished is finished. A step that still computes for a client who is gone must
    // not hold up the end.
    runtime.shutdown_background();
    served
}

/// Threads that carry connections, each on its own. Beside an engine there are none: there the runtime's threads do,
/// of which one is enough.
fn lanes(config: &Config) -> usize {
    match config.server.threads {
        _ if needs_engine(config) => 0,
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

/// Where nobody else is named, and where it is asked for.
fn needs_engine(config: &Config) -> bool {
    config.pools.is_empty() || config.models.iter().any(|model| model.engine.is_some())
}

async fn answer(
    options: Box<ServeOptions>,
    config: Config,
    role: Role,
    tenants: Tenants,
    made_up: SaltSecret,
    own: Option<embedded::Own>,
) -> Result<(), CommandError> {
    let mut banner = Banner {
        title: String::new(),
        lines: Vec::new(),
        address: config.server.listen,
        ask_for: None,
        needs_key: !tenants.is_open(),
        chats: true,
    };
    let (gateway, _publisher) = match own {
        Some(own) => own.gateway(tenants, &mut banner).await?,
        None => (Gateway::in_front_of(Catalog::default(), tenants), None),
    };
    let gateway = match open_cache(&config)? {
        Some(cache) => gateway.with_cache(cache, prices(&config)),
        None => gateway,
    };
    let gateway = Arc::new(gateway);
    let stop = StopSwitch::new();
    let operations: Arc<dyn Operations> = match role {
        Role::Server => {
            let live = go_live(options, &config, &gateway, made_up).await?;
            if !config.pools.is_empty() {
                describe_pools(&live, &config, &mut banner).await;
            }
            live
        }
        Role::Worker => Arc::new(Alone::new(config.clone())),
    };
    let mut admin = None;
    if let Some(section) = &config.admin {
        let server = open_admin(section, &gateway, operations)?;
        banner
            .lines
            .push(("admin", format!("http://{}", server.address())));
        admin = Some(tokio::spawn(server.run(stop.clone())));
    }
    let server = Server::bind(server_config(&config), Arc::clone(&gateway))?;
    banner.address = server.address();
    pull_on_signals(stop.clone())?;
    let status = tokio::spawn(status_line::report(gateway));
    // Without anyone to read it there is nobody to tell.
    let _ = writeln!(std::io::stdout(), "{banner}");
    server.run(stop).await;
    status.abort();
    if let Some(admin) = admin {
        // It ends with the switch that ended the server.
        let _ended = admin.await;
    }
    Ok(())
}

/// Starts what runs by the configuration, and what can be replaced while it runs.
async fn go_live(
    options: Box<ServeOptions>,
    config: &Config,
    gateway: &Arc<Gateway>,
    made_up: SaltSecret,
) -> Result<Arc<Live>, CommandError> {
    let sharing = sharing(config)?;
    let again = move || settings(&options);
    let live = Live::start(
        Arc::clone(gateway),
        config.clone(),
        made_up,
        sharing.as_ref().map(|sharing| sharing.keys.clone()),
        Box::new(again),
    )
    .await?;
    if let Some(sharing) = sharing {
        gateway.share(sharing)?;
    }
    reload_on_hangup(Arc::clone(&live))?;
    Ok(live)
}

fn server_config(config: &Config) -> ServerConfig {
    ServerConfig {
        listen: config.server.listen,
        max_connections: config.server.max_connections,
        header_timeout: config.server.header_timeout.into(),
        drain_timeout: config.server.drain_timeout.into(),
        lanes: lanes(config),
        blocking_threads: BLOCKING_THREADS.div_ceil(lanes(config).max(1)),
    }
}

fn open_admin(
    section: &config::Admin,
    gateway: &Arc<Gateway>,
    operations: Arc<dyn Operations>,
) -> Result<AdminServer, CommandError> {
    let key = section.key.as_ref().and_then(|key| key.reveal());
    let admin = AdminConfig {
        listen: section.listen,
        key: key.map(KeyHash::of),
    };
    Ok(AdminServer::bind(admin, Arc::clone(gateway), operations)?)
}

/// Adds the pools to what is said at the start. Waits a little for workers to say what they serve.
async fn describe_pools(live: &Live, config: &Config, banner: &mut Banner) {
    let deadline = Instant::now() + NAMES_WITHIN;
    while live.names().is_empty() && Instant::now() < deadline {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let names = live.names();
    let workers: usize = config.pools.iter().map(|pool| pool.workers.len()).sum();
    if banner.title.is_empty() {
        banner.title = format!("is the gateway to {workers} workers");
    }
    let listed = match names.as_slice() {
        [] => "not known yet: no worker has answered".to_owned(),
        names => names.join(", "),
    };
    banner.lines.push(("models", listed));
    for pool in &config.pools {
        let model = crate::wiring::model_of(config, pool);
        let how = match &model.tokenizer {
            Some(path) => format!("prompts compared by tokens ({})", path.display()),
            None => "prompts compared as text".to_owned(),
        };
        banner.lines.push((
            "pool",
            format!(
                "{}: {} workers, policy {}, {how}",
                pool.name,
                pool.workers.len(),
                pool.policy
            ),
        ));
    }
    if names.len() > 1 {
        banner.ask_for = names.into_iter().next();
    }
}
