//! What was said: in a file, by flags, or both. Flags win.

use std::path::Path;

use config::{Admin, Config, Events, Model, Pool, Worker};
use fleet::DEFAULT_POOL;

use crate::cli::{CacheOptions, FleetOptions, HttpOptions, ServeOptions, SharedOptions};
use crate::commands::CommandError;
use crate::size::ByteSize;

/// Reads everything; called again by every reload.
pub(crate) fn settings(options: &ServeOptions) -> Result<Config, CommandError> {
    let mut config = fleet_settings(&options.fleet)?;
    override_server(&mut config, &options.http)?;
    override_cache(&mut config, &options.cache);
    override_shared(&mut config, &options.shared);
    if let Some(template) = &options.model.chat_template {
        for model in config
            .models
            .iter_mut()
            .filter(|model| model.engine.is_none())
        {
            model.chat_template = Some(template.clone());
        }
    }
    let names = &options.model.served_model_name;
    if let ([model], [name, aliases @ ..]) = (config.models.as_mut_slice(), names.as_slice()) {
        // The workers keep their own name for it.
        if !options.fleet.worker.is_empty() {
            model.name.clone_from(name);
            model.aliases = aliases.to_vec();
        }
    }
    Ok(config)
}

/// The part that `check` needs, too.
pub(crate) fn fleet_settings(options: &FleetOptions) -> Result<Config, CommandError> {
    match &options.config {
        Some(path) => Ok(load(path)?),
        None => Ok(from_flags(options)),
    }
}

fn load(path: &Path) -> Result<Config, CommandError> {
    Config::load(path).map_err(CommandError::Config)
}

/// One pool of the workers that were named.
fn from_flags(options: &FleetOptions) -> Config {
    let mut config = Config::default();
    if options.worker.is_empty() {
        return config;
    }
    let worker = |url: &fleet::WorkerUrl| Worker {
        url: url.to_string(),
        events: options.worker_kv_events.as_ref().map(|endpoint| Events {
            endpoint: endpoint.clone(),
            replay: options.worker_kv_replay.clone(),
            ..Events::default()
        }),
        ..Worker::default()
    };
    config.pools.push(Pool {
        name: DEFAULT_POOL.to_owned(),
        policy: options.policy.unwrap_or_default(),
        workers: options.worker.iter().map(worker).collect(),
        ..Pool::default()
    });
    config.models.push(Model {
        pool: Some(DEFAULT_POOL.to_owned()),
        tokenizer: options.tokenizer.clone(),
        ..Model::default()
    });
    config
}

fn override_cache(config: &mut Config, options: &CacheOptions) {
    if let Some(store) = &options.cache {
        config.cache.store.clone_from(store);
        config.cache.store_url = None;
    }
    if let Some(ByteSize(bytes)) = options.cache_memory {
        config.cache.memory_bytes = bytes;
    }
}

fn override_shared(config: &mut Config, options: &SharedOptions) {
    if let Some(store) = &options.shared {
        config.shared.store.clone_from(store);
        config.shared.store_url = None;
    }
}

fn override_server(config: &mut Config, options: &HttpOptions) -> Result<(), CommandError> {
    if let Some(listen) = options.listen {
        config.server.listen = listen;
    }
    if let Some(timeout) = options.drain_timeout {
        config.server.drain_timeout = timeout.into();
    }
    if let Some(path) = &options.api_key_file {
        if !config.tenants.is_empty() {
            return Err(CommandError::KeysOfTenants);
        }
        config.server.api_key_file = Some(path.clone());
    }
    if let Some(listen) = options.admin_listen {
        config.admin.get_or_insert_with(Admin::default).listen = listen;
    }
    Ok(())
}
