//! What all requests share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use cache::Cache;
use replicas::Replicas;

use crate::catalog::Catalog;
use crate::metrics::HttpMetrics;
use crate::placement::PlacementMetrics;
use crate::recall::{PriceList, Recall};
use crate::relay::Relay;
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
    /// Which weights and settings are behind its name; answers of another revision are not recalled.
    pub revision: String,
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

/// A model that is served in this process.
pub(crate) struct Embedded {
    pub(crate) model: ServedModel,
    pub(crate) worker: Arc<dyn Worker>,
}

/// What all requests share.
pub struct Gateway {
    embedded: Option<Arc<Embedded>>,
    catalog: ArcSwap<Catalog>,
    pub(crate) relay: Relay,
    placement: PlacementMetrics,
    tenants: ArcSwap<Tenants>,
    pub(crate) metrics: HttpMetrics,
    pub(crate) traffic: Traffic,
    pub(crate) created: u64,
    pub(crate) recall: Option<Recall>,
    /// The exchange with other gateways, if there is one.
    pub(crate) replicas: OnceLock<Replicas>,
    draining: AtomicBool,
}

impl Gateway {
    /// A gateway in front of an engine in this process.
    pub fn new(model: ServedModel, worker: Arc<dyn Worker>, tenants: Tenants) -> Self {
        let embedded = Embedded { model, worker };
        Self::with(Some(Arc::new(embedded)), Catalog::default(), tenants)
    }

    /// A gateway in front of workers elsewhere.
    pub fn in_front_of(catalog: Catalog, tenants: Tenants) -> Self {
        Self::with(None, catalog, tenants)
    }

    fn with(embedded: Option<Arc<Embedded>>, catalog: Catalog, tenants: Tenants) -> Self {
        let relay = Relay::default();
        Self {
            embedded,
            catalog: ArcSwap::from_pointee(catalog),
            tenants: ArcSwap::from_pointee(tenants),
            metrics: HttpMetrics::new(&relay.metrics),
            placement: PlacementMetrics::default(),
            relay,
            traffic: Traffic::default(),
            created: unix_seconds(),
            recall: None,
            replicas: OnceLock::new(),
            draining: AtomicBool::new(false),
        }
    }

    /// The same with a memory for answers.
    #[must_use]
    pub fn with_cache(self, cache: Arc<Cache>, prices: impl Into<PriceList>) -> Self {
        let prices = prices.into();
        Self {
            recall: Some(Recall { cache, prices }),
            ..self
        }
    }

    /// What generates in this process, if anything does.
    pub fn worker(&self) -> Option<&dyn Worker> {
        self.embedded.as_deref().map(|own| own.worker.as_ref())
    }

    pub(crate) fn embedded(&self) -> Option<&Arc<Embedded>> {
        self.embedded.as_ref()
    }

    /// Where the pools in this gateway's catalog are to count.
    pub fn placement_metrics(&self) -> &PlacementMetrics {
        &self.placement
    }

    /// The models that workers elsewhere serve.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// Puts others in their place; requests that were let in go on as they were.
    pub fn replace_catalog(&self, catalog: Catalog) {
        self.catalog.store(Arc::new(catalog));
    }

    /// Whether anything that is served here could be: by the engine in this process, or by a worker of some pool.
    pub(crate) fn can_serve(&self) -> bool {
        let catalog = self.catalog();
        let here = self.worker().is_some_and(Worker::is_alive);
        here || catalog.models().iter().any(|model| model.pool.can_serve())
    }

    /// Who may ask.
    pub fn tenants(&self) -> Arc<Tenants> {
        self.tenants.load_full()
    }

    /// Puts others in their place; requests that were let in go on as they were.
    pub fn replace_tenants(&self, tenants: Tenants) {
        self.tenants.store(Arc::new(tenants));
    }

    /// The names of models that a tenant may ask for, and the length of what each can hold, if known.
    pub(crate) fn models_for(&self, tenant: &Tenant) -> Vec<(String, Option<usize>)> {
        let own = self.embedded.iter().flat_map(|own| {
            let max_len = Some(own.model.max_model_len);
            own.model
                .names
                .iter()
                .map(move |name| (name.clone(), max_len))
        });
        let catalog = self.catalog();
        let elsewhere = catalog
            .names()
            .map(|(name, model)| (name.to_owned(), model.max_model_len));
        own.chain(elsewhere)
            .filter(|(name, _)| tenant.models.allow(name))
            .collect()
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
