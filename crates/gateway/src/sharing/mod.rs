//! This gateway among others: what it tells them, and what it makes of what they say.
//!
//! All of it happens in the background; the exchange itself is `replicas`'.

mod metrics;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use fleet::breaker::BreakerState;
use fleet::health::Condition;
use fleet::{Hearsay, Worker};
use replicas::{
    Config, Elsewhere, Household, Keys, Kind, MAX_USES, Name, News, Prefix, Replicas, SILENT_AFTER,
    Said, Use,
};

use crate::gateway::Gateway;
use crate::placement::Pool;
pub(crate) use metrics::encode;

/// A gateway that talks to others.
struct Member {
    gateway: Weak<Gateway>,
    keys: Keys,
}

impl Gateway {
    /// Begins to exchange with other gateways what each knows; must be called within a runtime, and once.
    ///
    /// # Errors
    /// If the address of Redis is not usable.
    pub fn share(self: &Arc<Self>, config: Config) -> Result<(), cache::AddressError> {
        let member = Member {
            gateway: Arc::downgrade(self),
            keys: config.keys.clone(),
        };
        let replicas = Replicas::start(config, Arc::new(member))?;
        // A second exchange ends with its handle.
        let _already = self.replicas.set(replicas);
        Ok(())
    }

    /// The pools behind all models, each once.
    fn pools(&self) -> Vec<Arc<Pool>> {
        let mut pools: Vec<Arc<Pool>> = Vec::new();
        for model in self.catalog().models() {
            if !pools.iter().any(|pool| Arc::ptr_eq(pool, &model.pool)) {
                pools.push(Arc::clone(&model.pool));
            }
        }
        pools
    }
}

impl Member {
    fn name(&self, pool: &Pool, worker: &Worker) -> Name {
        self.keys
            .worker(pool.name(), &worker.spec().url.to_string())
    }
}

impl Household for Member {
    fn say(&self, now: Instant) -> Said {
        let Some(gateway) = self.gateway.upgrade() else {
            return Said::default();
        };
        let mut said = Said::default();
        for pool in gateway.pools() {
            for worker in pool.snapshot().workers() {
                if let Some(kind) = illness(worker, now) {
                    said.ill.push((self.name(&pool, worker), kind));
                }
            }
            let sent = pool.take_sent().into_iter();
            said.prefixes.extend(sent.map(|(worker, keys)| Prefix {
                worker: self.name(&pool, &worker),
                keys,
            }));
        }
        let tenants = gateway.tenants();
        let uses = tenants.iter().filter_map(|tenant| {
            let told = tenant.told(now)?;
            Some(Use {
                tenant: self.keys.tenant(&tenant.name),
                requests: told.requests,
                tokens: told.tokens,
                running: told.running,
            })
        });
        said.uses = uses.take(MAX_USES).collect();
        said
    }

    fn hear(&self, news: News, now: Instant) {
        let Some(gateway) = self.gateway.upgrade() else {
            return;
        };
        for pool in gateway.pools() {
            for worker in pool.snapshot().workers() {
                let said = news.troubles.get(&self.name(&pool, worker));
                let hearsay = said.map(|said| Hearsay {
                    since: said.since,
                    until: now + SILENT_AFTER,
                });
                worker.advise(hearsay, now);
            }
        }
        let nothing = Elsewhere::default();
        for tenant in gateway.tenants().iter() {
            let elsewhere = news.uses.get(&self.keys.tenant(&tenant.name));
            tenant.heard(elsewhere.unwrap_or(&nothing), news.others, now);
        }
    }

    fn hear_prefixes(&self, prefixes: Vec<Prefix>) {
        let Some(gateway) = self.gateway.upgrade() else {
            return;
        };
        for pool in gateway.pools() {
            let snapshot = pool.snapshot();
            let workers = snapshot.workers().iter();
            let workers: HashMap<Name, &Arc<Worker>> = workers
                .map(|worker| (self.name(&pool, worker), worker))
                .collect();
            for prefix in &prefixes {
                if let Some(worker) = workers.get(&prefix.worker) {
                    pool.hear_of_prompt(worker, &prefix.keys);
                }
            }
        }
    }
}

/// What is wrong with a worker by our own experience. What only others say is not passed on.
fn illness(worker: &Worker, now: Instant) -> Option<Kind> {
    match (worker.condition(now), worker.breaker(now)) {
        (Condition::Down(_), _) => Some(Kind::Down),
        (Condition::Draining(_), _) => None,
        (_, BreakerState::Open) => Some(Kind::Failing),
        _ => None,
    }
}
