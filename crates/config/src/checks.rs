//! What no single value can tell: names that must exist, things that exclude each other, bounds.
//!
//! Secrets are looked up and relative paths made whole on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use fleet::{EventsSpec, WorkerSpec, WorkerUrl};

use crate::load::Context;
use crate::nearest::suggest;
use crate::path::Path;
use crate::secret::Secret;
use crate::sections::{
    Admin, Cache, CacheRules, Config, Events, Hook, Key, Model, Pool, Recycling, Shared, Tenant,
    Timeouts,
};
use crate::time::Time;

const PASSWORD_IN_FILE: &str =
    "an address with a password does not stand in this file; write store_url = { env = \"NAME\" }";

/// Looks at everything and gives all that is wrong.
pub(crate) fn check(config: &mut Config, context: &Context<'_>) -> Vec<(Path, String)> {
    let mut checks = Checks {
        context,
        found: Vec::new(),
    };
    checks.all(config);
    checks.found
}

struct Checks<'a> {
    context: &'a Context<'a>,
    found: Vec<(Path, String)>,
}

impl Checks<'_> {
    fn tell(&mut self, path: Path, message: impl Into<String>) {
        self.found.push((path, message.into()));
    }

    fn all(&mut self, config: &mut Config) {
        if let Some(admin) = &mut config.admin {
            self.admin(admin);
        }
        self.secret(&mut config.salt_secret, Path::at("salt_secret"));
        self.file(
            &mut config.server.api_key_file,
            Path::at("server").key("api_key_file"),
        );
        if config.server.api_key_file.is_some() && !config.tenants.is_empty() {
            self.tell(
                Path::at("server").key("api_key_file"),
                "with tenants, keys belong to them; move the keys to a tenant",
            );
        }
        self.pools(config);
        self.models(&mut config.models, &config.pools);
        self.tenants(config);
        self.limits(&config.limits, &Path::at("limits"));
        self.cache(&mut config.cache);
        self.shared(&mut config.shared);
    }

    fn cache(&mut self, cache: &mut Cache) {
        let path = Path::at("cache");
        self.secret(&mut cache.store_url, path.key("store_url"));
        self.secret(&mut cache.secret, path.key("secret"));
        if cache.store.contains('@') {
            self.tell(path.key("store"), PASSWORD_IN_FILE);
        }
        let is_shared = !matches!(cache.store(), Cache::OFF | Cache::MEMORY);
        if is_shared && cache.secret.is_none() {
            self.tell(
                path.clone(),
                "a store that gateways share needs secret = { env = \"NAME\" }, the same for all of them",
            );
        }
        self.cache_rules(&cache.rules, &path);
    }

    fn shared(&mut self, shared: &mut Shared) {
        let path = Path::at("shared");
        self.secret(&mut shared.store_url, path.key("store_url"));
        self.secret(&mut shared.secret, path.key("secret"));
        if shared.store.contains('@') {
            self.tell(path.key("store"), PASSWORD_IN_FILE);
        }
        if shared.group.is_empty() || shared.group.contains(['{', '}']) {
            self.tell(path.key("group"), "a group has a name, without braces");
        }
    }

    fn cache_rules(&mut self, rules: &CacheRules, path: &Path) {
        if rules
            .variants
            .is_some_and(|count| !(1..=16).contains(&count))
        {
            self.tell(path.key("variants"), "write 1 to 16");
        }
        if let Some(ttl) = rules.ttl {
            self.positive(ttl, path.key("ttl"));
        }
    }

    fn admin(&mut self, admin: &mut Admin) {
        let path = Path::at("admin");
        self.secret(&mut admin.key, path.key("key"));
        if !admin.listen.ip().is_loopback() && admin.key.is_none() {
            self.tell(
                path.key("listen"),
                format!(
                    "{} is open to others; set admin.key, or listen on 127.0.0.1",
                    admin.listen
                ),
            );
        }
    }

    fn pools(&mut self, config: &mut Config) {
        let has_admin = config.admin.is_some();
        let mut workers = BTreeMap::new();
        let named = config.pools.iter().map(|pool| &*pool.name).enumerate();
        self.unique(named.map(|(place, name)| (Path::at("pools").index(place), name)));
        for (place, pool) in config.pools.iter_mut().enumerate() {
            let path = Path::at("pools").index(place);
            if pool.workers.is_empty() && pool.dns.is_empty() && pool.file.is_none() && !has_admin {
                self.tell(
                    path.clone(),
                    "the pool has no workers and no way to get any; add workers, dns, file or an admin section",
                );
            }
            self.pool(pool, &path, &mut workers);
        }
    }

    fn pool(&mut self, pool: &mut Pool, path: &Path, names: &mut BTreeMap<String, Path>) {
        for (place, worker) in pool.workers.iter_mut().enumerate() {
            let path = path.key("workers").index(place);
            self.secret(&mut worker.api_key, path.key("api_key"));
            let spec = self.worker(&worker.url, worker.events.as_ref(), &path);
            let name = worker.name.clone().or(spec);
            if let Some(first) = name.and_then(|name| names.insert(name, path.clone())) {
                self.tell(
                    path,
                    format!("it has the same name as {first}; give each a name of its own"),
                );
            }
        }
        for (place, dns) in pool.dns.iter_mut().enumerate() {
            let path = path.key("dns").index(place);
            self.secret(&mut dns.api_key, path.key("api_key"));
            self.worker(&dns.url, dns.events.as_ref(), &path);
            self.positive(dns.every, path.key("every"));
        }
        // The file may come later: it is watched.
        if let Some(file) = &mut pool.file {
            *file = self.context.resolve(file);
        }
        for (time, key) in [
            (pool.scrape_every, "scrape_every"),
            (pool.scrape_timeout, "scrape_timeout"),
            (pool.probe_every, "probe_every"),
        ] {
            self.positive(time, path.key(key));
        }
        self.timeouts(&pool.timeouts, &path.key("timeouts"));
        if pool.block_tokens == 0 {
            self.tell(path.key("block_tokens"), "it must be more than 0");
        }
        let admission = path.key("admission");
        self.share(pool.admission.low_up_to, admission.key("low_up_to"));
        self.share(pool.admission.normal_up_to, admission.key("normal_up_to"));
        if pool.admission.low_up_to > pool.admission.normal_up_to {
            self.tell(
                admission.key("low_up_to"),
                "it must not be more than normal_up_to: low priority is refused first",
            );
        }
        self.share(pool.retries.share, path.key("retries").key("share"));
        if let Some(recycling) = &pool.recycling {
            self.recycling(recycling, &path.key("recycling"));
        }
    }

    /// The worker's default name, if its address is one.
    fn worker(&mut self, url: &str, events: Option<&Events>, path: &Path) -> Option<String> {
        let url = match WorkerUrl::parse(url) {
            Ok(url) => url,
            Err(error) => {
                self.tell(path.key("url"), error.to_string());
                return None;
            }
        };
        let mut spec = WorkerSpec::new(url);
        spec.events = events.map(events_spec);
        if let Err(error) = spec.check() {
            self.tell(path.key("events"), error.to_string());
        }
        Some(spec.name().to_owned())
    }

    fn timeouts(&mut self, timeouts: &Timeouts, path: &Path) {
        for (time, key) in [
            (timeouts.connect, "connect"),
            (timeouts.first_token, "first_token"),
            (timeouts.between_tokens, "between_tokens"),
            (timeouts.total_at_least, "total_at_least"),
        ] {
            self.positive(time, path.key(key));
        }
        if timeouts.total_at_least > timeouts.total_at_most {
            self.tell(path.key("total_at_most"), "it is less than total_at_least");
        }
        if timeouts.first_token > timeouts.total_at_most {
            self.tell(
                path.key("first_token"),
                "it is more than total_at_most, and never comes to bear",
            );
        }
    }

    fn recycling(&mut self, recycling: &Recycling, path: &Path) {
        self.share(recycling.drift, path.key("drift"));
        let Hook { url, command } = &recycling.hook;
        let hook = path.key("hook");
        match (url, command.first()) {
            (Some(_), Some(_)) => self.tell(hook, "it has a url and a command; keep one"),
            (None, None) => self.tell(
                hook,
                "write { url = \"http://…\" } or { command = [\"…\"] }",
            ),
            (Some(url), None) => {
                if let Err(error) = WorkerUrl::parse(url) {
                    self.tell(hook.key("url"), error.to_string());
                }
            }
            (None, Some(_)) => {}
        }
    }

    fn models(&mut self, models: &mut [Model], pools: &[Pool]) {
        let path = Path::at("models");
        let named = models.iter().enumerate().flat_map(|(place, model)| {
            let path = path.index(place);
            names_of(model).map(move |name| (path.clone(), name))
        });
        self.unique(named);
        let (mut engines, mut served) = (0, BTreeSet::new());
        for (place, model) in models.iter_mut().enumerate() {
            let path = path.index(place);
            self.file(&mut model.tokenizer, path.key("tokenizer"));
            self.file(&mut model.chat_template, path.key("chat_template"));
            if model.name.is_empty() && (model.served_as.is_some() || !model.aliases.is_empty()) {
                self.tell(
                    path.clone(),
                    "aliases and served_as need a name to stand for; write name = \"…\"",
                );
            }
            // The only pool need not be named.
            if let ([only], None, None) = (pools, &model.pool, &model.engine) {
                model.pool = Some(only.name.clone());
            }
            match (&model.pool, &mut model.engine) {
                (Some(_), Some(_)) => self.tell(path, "it has a pool and an engine; keep one"),
                (None, None) => self.tell(path, "who answers? name a pool, or write engine = {}"),
                (Some(pool), None) => {
                    let known = || pools.iter().map(|pool| &*pool.name);
                    if !known().any(|name| name == pool) {
                        let suggestion = suggest(pool, known());
                        self.tell(
                            path.key("pool"),
                            format!("there is no pool {pool:?}; {suggestion}"),
                        );
                    } else if !served.insert(pool.clone()) {
                        self.tell(
                            path.key("pool"),
                            format!("the pool {pool:?} serves another model; use aliases or loras, or another pool"),
                        );
                    }
                }
                (None, Some(engine)) => {
                    engines += 1;
                    if engines > 1 {
                        self.tell(
                            path.key("engine"),
                            "one model can be served in this process; another one is",
                        );
                    }
                    self.file(&mut engine.path, path.key("engine").key("path"));
                }
            }
        }
    }

    fn tenants(&mut self, config: &mut Config) {
        // Names that are learnt from workers, or from a model's file, are not known yet.
        let pools: BTreeSet<&str> = config
            .models
            .iter()
            .filter_map(|model| model.pool.as_deref())
            .collect();
        let all_known = config.pools.iter().all(|pool| pools.contains(&*pool.name))
            && config.models.iter().all(|model| !model.name.is_empty());
        let known: BTreeSet<&str> = config.models.iter().flat_map(names_of).collect();
        let known = all_known.then_some(&known);
        let path = Path::at("tenants");
        let named = config
            .tenants
            .iter()
            .map(|tenant| &*tenant.name)
            .enumerate();
        self.unique(named.map(|(place, name)| (path.index(place), name)));
        let mut anonymous = false;
        for (place, tenant) in config.tenants.iter_mut().enumerate() {
            let path = path.index(place);
            self.tenant(tenant, &path, known);
            if tenant.anonymous && std::mem::replace(&mut anonymous, true) {
                self.tell(
                    path.key("anonymous"),
                    "another tenant is anonymous, too; there can be one",
                );
            }
        }
    }

    fn tenant(&mut self, tenant: &mut Tenant, path: &Path, known: Option<&BTreeSet<&str>>) {
        if tenant.keys.is_empty() && !tenant.anonymous {
            self.tell(
                path.clone(),
                "nobody can be this tenant; give it keys, or anonymous = true",
            );
        }
        for (place, key) in tenant.keys.iter_mut().enumerate() {
            let path = path.key("keys").index(place);
            match key {
                Key::Kept(secret) => self.look_up(secret, path),
                Key::Hash { sha256 } => {
                    let digits = sha256.bytes().filter(u8::is_ascii_hexdigit).count();
                    if digits != 64 || sha256.len() != 64 {
                        self.tell(
                            path,
                            "a SHA-256 has 64 hexadecimal digits: printf %s \"$KEY\" | sha256sum",
                        );
                    }
                }
            }
        }
        if tenant.priority > tenant.max_priority() {
            self.tell(path.key("priority"), "it is higher than max_priority");
        }
        for name in tenant.models.iter().flatten() {
            if let Some(known) = known.filter(|known| !known.contains(&**name)) {
                let suggestion = suggest(name, known.iter().copied());
                self.tell(
                    path.key("models"),
                    format!("there is no model {name:?}; {suggestion}"),
                );
            }
        }
        self.limits(&tenant.limits, &path.key("limits"));
        self.cache_rules(&tenant.cache, &path.key("cache"));
    }

    fn limits(&mut self, limits: &crate::Limits, path: &Path) {
        for (zero, key) in [
            (limits.requests_per_minute == Some(0), "requests_per_minute"),
            (limits.tokens_per_minute == Some(0), "tokens_per_minute"),
            (limits.concurrent == Some(0), "concurrent"),
        ] {
            if zero {
                self.tell(
                    path.key(key),
                    "0 lets nothing through; leave it out for no limit",
                );
            }
        }
    }

    fn unique<'n>(&mut self, names: impl Iterator<Item = (Path, &'n str)>) {
        let mut seen = BTreeSet::new();
        for (path, name) in names {
            if name.is_empty() {
                self.tell(path, "it has no name; write name = \"…\"");
            } else if !seen.insert(name) {
                self.tell(
                    path,
                    format!("another one is called {name:?}, too; names must differ"),
                );
            }
        }
    }

    fn secret(&mut self, secret: &mut Option<Secret>, path: Path) {
        if let Some(secret) = secret {
            self.look_up(secret, path);
        }
    }

    fn look_up(&mut self, secret: &mut Secret, path: Path) {
        if let Err(error) = secret.resolve(self.context) {
            self.tell(path, error);
        }
    }

    /// Makes a path whole; what it leads to must be there.
    fn file(&mut self, file: &mut Option<PathBuf>, path: Path) {
        if let Some(file) = file {
            *file = self.context.resolve(file);
            if !file.exists() {
                self.tell(path, format!("there is nothing at {}", file.display()));
            }
        }
    }

    fn positive(&mut self, time: Time, path: Path) {
        if time.0.is_zero() {
            self.tell(path, "it must be more than 0");
        }
    }

    fn share(&mut self, share: f64, path: Path) {
        if !(0.0..=1.0).contains(&share) {
            self.tell(path, format!("{share} is no share; write 0 to 1"));
        }
    }
}

fn names_of(model: &Model) -> impl Iterator<Item = &str> {
    model.names().chain(model.loras.iter().map(String::as_str))
}

fn events_spec(events: &Events) -> EventsSpec {
    EventsSpec {
        endpoint: events.endpoint.clone(),
        replay: events.replay.clone(),
        topic: events.topic.clone(),
        ranks: events.ranks,
    }
}
