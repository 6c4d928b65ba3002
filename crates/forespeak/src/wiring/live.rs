//! What runs, and how it is replaced.
//!
//! A reload makes everything that can fail first: files are read, tokenizers loaded, new pools started. Only then is
//! the new put in place of the old, so that a bad file changes nothing. A pool in which only the list of workers
//! changed lives on, with all it knows of their caches; any other change makes a new one, and the old one ends with
//! its last request.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use config::{Config, Model};
use gateway::admin::Operations;
use gateway::placement::Pool;
use gateway::tenants::{SaltSecret, Tenants};
use gateway::{Catalog, Gateway};
use routing::keys::KeySeed;
use serde_json::Value;
use tokio::time::sleep;

use super::cache::prices;
use super::learn::{Learnt, ask_for_models};
use super::pools::{codec_of, fleet_model, model_of, pool_config, workers};
use super::tenants::{salt_secret, tenants};
use crate::commands::CommandError;

/// How often workers are asked for their models while nobody has answered.
const LEARN_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// How often they are asked once that is known: adapters come and go.
const LEARN_EVERY: Duration = Duration::from_secs(30);

/// Reads what was said.
type Settings = Box<dyn Fn() -> Result<Config, CommandError> + Send + Sync>;

/// Everything that runs by the configuration.
pub(crate) struct Live {
    gateway: Arc<Gateway>,
    settings: Settings,
    /// For salts, if none is configured.
    made_up: SaltSecret,
    /// What the gateways that we talk to have in common, if we talk to any.
    replicas: Option<replicas::Keys>,
    state: Mutex<State>,
    /// One reload at a time.
    reloading: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    config: Config,
    pools: BTreeMap<String, Running>,
}

/// A pool and what it was started with.
#[derive(Clone)]
struct Running {
    settings: config::Pool,
    model: Model,
    pool: Arc<Pool>,
    learnt: Learnt,
}

impl Running {
    /// Whether the pool can go on, with other workers perhaps.
    fn fits(&self, settings: &config::Pool, model: &Model) -> bool {
        let but_workers = |pool: &config::Pool| config::Pool {
            workers: Vec::new(),
            // These belong to the relay, not to the pool.
            timeouts: config::Timeouts::default(),
            retries: config::Retries::default(),
            forwards_priority: false,
            ..pool.clone()
        };
        but_workers(&self.settings) == but_workers(settings)
            && self.model.tokenizer == model.tokenizer
            && self.model.chat_template == model.chat_template
    }
}

impl Live {
    /// Starts everything; must be called within a runtime.
    pub(crate) async fn start(
        gateway: Arc<Gateway>,
        config: Config,
        made_up: SaltSecret,
        replicas: Option<replicas::Keys>,
        settings: Settings,
    ) -> Result<Arc<Self>, CommandError> {
        let live = Arc::new(Self {
            gateway,
            settings,
            made_up,
            replicas,
            state: Mutex::default(),
            reloading: tokio::sync::Mutex::default(),
        });
        live.apply(config).await?;
        tokio::spawn(learn(Arc::downgrade(&live)));
        Ok(live)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a configuration in force, or changes nothing. Says what changed.
    async fn apply(&self, config: Config) -> Result<Vec<String>, CommandError> {
        let _alone = self.reloading.lock().await;
        let secret = salt_secret(&config, &self.made_up);
        let new_tenants = tenants(&config, &secret, &self.gateway.tenants())?;
        let mut changes = Vec::new();
        let mut next = BTreeMap::new();
        for settings in &config.pools {
            let running = self.pool(&config, settings, &mut changes).await?;
            next.insert(settings.name.clone(), running);
        }
        let mut wanted = Vec::new();
        for running in next.values() {
            let specs = workers(&running.settings)?;
            running.pool.fleet().check_reload(&specs)?;
            wanted.push((&running.pool, specs));
        }
        // From here on only an operator who fills up a pool at this very moment could make one of several fail.
        for (pool, specs) in wanted {
            pool.fleet().reload(specs)?;
        }
        let mut state = self.state();
        let gone = state.pools.keys().filter(|name| !next.contains_key(*name));
        changes.extend(gone.map(|name| format!("pool {name:?} is gone")));
        changes.extend(fixed(&state.config, &config));
        changes.extend(self.replace_tenants(&state.config, &config, new_tenants));
        *state = State {
            config,
            pools: next,
        };
        drop(state);
        self.publish();
        Ok(changes)
    }

    /// The pool that goes on, or a new one.
    async fn pool(
        &self,
        config: &Config,
        settings: &config::Pool,
        changes: &mut Vec<String>,
    ) -> Result<Running, CommandError> {
        let model = model_of(config, settings);
        let name = &settings.name;
        let before = self.state().pools.get(name).cloned();
        let fitting = before
            .clone()
            .filter(|running| running.fits(settings, &model));
        if let Some(running) = fitting {
            if running.settings != *settings || running.model != model {
                changes.push(format!("pool {name:?} goes on with other settings"));
            }
            return Ok(Running {
                settings: settings.clone(),
                model,
                ..running
            });
        }
        let mut started = pool_config(settings, self.gateway.placement_metrics())?;
        let keys = self.replicas.as_ref();
        started.shared_seed = keys.map(|keys| KeySeed(keys.seed(name)));
        let reading = model.clone();
        // A tokenizer takes up to seconds to load.
        let codec = tokio::task::spawn_blocking(move || codec_of(&reading))
            .await
            .map_err(|error| CommandError::System(error.into()))??;
        let pool = Arc::new(Pool::start(started, codec)?);
        changes.push(match before {
            Some(_) => format!("pool {name:?} starts anew"),
            None => format!("pool {name:?} is new"),
        });
        Ok(Running {
            settings: settings.clone(),
            model,
            pool,
            learnt: before.map(|running| running.learnt).unwrap_or_default(),
        })
    }

    fn replace_tenants(&self, old: &Config, new: &Config, tenants: Tenants) -> Option<String> {
        let changed = old.tenants != new.tenants
            || old.limits != new.limits
            || old.cache.rules != new.cache.rules;
        self.gateway.replace_tenants(tenants);
        changed.then(|| "tenants and limits are new".to_owned())
    }

    /// Shows clients what is served now.
    fn publish(&self) {
        let state = self.state();
        let models = state.config.pools.iter().filter_map(|settings| {
            let running = state.pools.get(&settings.name)?;
            let model = fleet_model(
                &running.settings,
                &running.model,
                &running.learnt,
                &running.pool,
            )?;
            Some(Arc::new(model))
        });
        let catalog = Catalog::new(models.collect());
        self.gateway.replace_catalog(catalog);
    }

    /// Asks the workers of every pool what they serve. True if all pools know.
    pub(crate) async fn learn(&self) -> bool {
        let pools: Vec<(String, Arc<Pool>)> = {
            let state = self.state();
            let known = state.pools.iter();
            known
                .map(|(name, running)| (name.clone(), Arc::clone(&running.pool)))
                .collect()
        };
        let mut all = true;
        let mut changed = false;
        for (name, pool) in pools {
            let Some(learnt) = learn_from(&pool).await else {
                all = false;
                continue;
            };
            let mut state = self.state();
            let Some(running) = state.pools.get_mut(&name) else {
                continue;
            };
            if running.learnt != learnt {
                if running.model.name.is_empty() {
                    tracing::info!(pool = name, names = ?learnt.names, adapters = ?learnt.adapters, "the workers say what they serve");
                }
                running.learnt = learnt;
                changed = true;
            }
        }
        if changed {
            self.publish();
        }
        all
    }

    /// Reads the configuration again and puts it in force, or leaves everything as it is.
    pub(crate) async fn reload(&self) -> Result<Vec<String>, String> {
        let read = (self.settings)().map_err(|error| error.to_string());
        let applied = match read {
            Ok(config) => self.apply(config).await.map_err(|error| error.to_string()),
            Err(error) => Err(error),
        };
        match &applied {
            Ok(changes) => tracing::info!(?changes, "configuration read again"),
            Err(reason) => tracing::error!("the configuration stays as it was: {reason}"),
        }
        applied
    }

    /// The names under which something is served.
    pub(crate) fn names(&self) -> Vec<String> {
        let catalog = self.gateway.catalog();
        catalog
            .models()
            .iter()
            .flat_map(|model| model.names.clone())
            .collect()
    }
}

/// The first worker that answers speaks for all: `check` compares them.
async fn learn_from(pool: &Pool) -> Option<Learnt> {
    for worker in pool.snapshot().workers() {
        match ask_for_models(worker.spec()).await {
            Ok(learnt) if !learnt.names.is_empty() => return Some(learnt),
            Ok(_) => {}
            Err(error) => tracing::debug!(worker = worker.name(), %error, "no list of models"),
        }
    }
    None
}

async fn learn(live: std::sync::Weak<Live>) {
    loop {
        let all = match live.upgrade() {
            Some(live) => live.learn().await,
            None => return,
        };
        sleep(if all { LEARN_EVERY } else { LEARN_AGAIN_AFTER }).await;
    }
}

/// What a running process cannot change.
fn fixed(old: &Config, new: &Config) -> Vec<String> {
    let mut told = Vec::new();
    if *old == Config::default() {
        return told;
    }
    for (differs, what) in [
        (old.server != new.server, "[server]"),
        (old.admin != new.admin, "[admin]"),
        (stores(old) != stores(new), "where [cache] keeps answers"),
        (prices(old) != prices(new), "what tokens cost"),
        (engines(old) != engines(new), "a model's engine"),
        (old.shared != new.shared, "[shared]"),
    ] {
        if differs {
            told.push(format!("{what} takes effect after a restart"));
        }
    }
    told
}

fn stores(config: &Config) -> (&str, u64) {
    (config.cache.store(), config.cache.memory_bytes)
}

fn engines(config: &Config) -> Vec<&config::EngineModel> {
    config
        .models
        .iter()
        .filter_map(|model| model.engine.as_ref())
        .collect()
}

impl Operations for Live {
    fn pools(&self) -> Vec<Arc<Pool>> {
        let state = self.state();
        state
            .pools
            .values()
            .map(|running| Arc::clone(&running.pool))
            .collect()
    }

    fn config(&self) -> Value {
        serde_json::to_value(&self.state().config).unwrap_or_default()
    }

    fn reload(&self) -> Pin<Box<dyn Future<Output = Result<Vec<String>, String>> + Send + '_>> {
        Box::pin(self.reload())
    }
}
