//! What all requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;

use crate::metrics::HttpMetrics;
use crate::tenants::{Tenant, Tenants};
use crate::traffic::Traffic;
use crate::worker::{Codec, Worker};

/// The model behind the door.
pub struct ServedModel {
    /// The names clients may ask for, the first of which answers carry. Never empty in practice; a model
    /// without a name answers only requests that name none.
    pub names: Vec<String>,
    /// Most tokens of prompt and answer together.
    pub max_model_len: usize,
    /// Its language.
    pub codec: Arc<dyn Codec>,
}

impl ServedModel {
    /// The name that answers carry.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// Whether a client that asked for `name` means this model.
    pub fn answers_to(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }
}

/// What all requests share.
pub struct Gateway {
    pub(crate) model: ServedModel,
    pub(crate) worker: Arc<dyn Worker>,
    tenants: ArcSwap<Tenants>,
    pub(crate) metrics: HttpMetrics,
    pub(crate) traffic: Traffic,
    pub(crate) created: u64,
    draining: AtomicBool,
}

impl Gateway {
    /// A gateway in front of one worker.
    pub fn new(model: ServedModel, worker: Arc<dyn Worker>, tenants: Tenants) -> Self {
        Self {
            model,
            worker,
            tenants: ArcSwap::from_pointee(tenants),
            metrics: HttpMetrics::default(),
            traffic: Traffic::default(),
            created: unix_seconds(),
            draining: AtomicBool::new(false),
        }
    }

    /// The model behind the door.
    pub fn model(&self) -> &ServedModel {
        &self.model
    }

    /// What generates.
    pub fn worker(&self) -> &dyn Worker {
        self.worker.as_ref()
    }

    /// Who may ask.
    pub fn tenants(&self) -> Arc<Tenants> {
        self.tenants.load_full()
    }

    /// Puts others in their place; requests that were let in go on as they were.
    pub fn replace_tenants(&self, tenants: Tenants) {
        self.tenants.store(Arc::new(tenants));
    }

    /// The names of models that a tenant may ask for.
    pub(crate) fn names_for<'a>(&'a self, tenant: &'a Tenant) -> impl Iterator<Item = &'a str> {
        let names = self.model.names.iter().map(String::as_str);
        names.filter(|name| tenant.models.allow(name))
    }

    /// What went through since the start.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Whether the server finishes what it has and takes no more.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn start_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
