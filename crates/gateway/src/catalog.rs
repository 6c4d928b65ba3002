//! Which model is served by which pool of workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::placement::Pool;
use crate::relay::{RelayTimeouts, RetryBudget, RetryLimits};

/// A model that a pool of workers serves.
#[derive(Debug)]
pub struct FleetModel {
    /// The names clients may ask for, the first of which is its own.
    pub names: Vec<String>,
    /// Adapters that its workers offer as models of their own: LoRA, by name.
    pub adapters: Vec<String>,
    /// What the workers call it; `None` if they know the names above.
    pub upstream_name: Option<String>,
    /// Which weights and settings are behind its name; answers of another revision are not recalled.
    pub revision: String,
    /// Most tokens of prompt and answer together, if known.
    pub max_model_len: Option<usize>,
    /// Whether the workers schedule by priority. vLLM refuses the field if it was not started so.
    pub forwards_priority: bool,
    /// How long its workers are waited for.
    pub timeouts: RelayTimeouts,
    /// Its workers.
    pub pool: Arc<Pool>,
    pub(crate) retries: RetryBudget,
}

impl FleetModel {
    /// A model of this name, with defaults for the rest.
    pub fn new(name: impl Into<String>, pool: Arc<Pool>) -> Self {
        Self {
            names: vec![name.into()],
            adapters: Vec::new(),
            upstream_name: None,
            revision: String::new(),
            max_model_len: None,
            forwards_priority: false,
            timeouts: RelayTimeouts::default(),
            pool,
            retries: RetryBudget::default(),
        }
    }

    /// With other limits on retries.
    #[must_use]
    pub fn with_retries(mut self, limits: RetryLimits) -> Self {
        self.retries = RetryBudget::new(limits);
        self
    }

    /// The adapter of this name.
    pub(crate) fn adapter(&self, name: &str) -> Option<&str> {
        let adapter = self.adapters.iter().find(|adapter| *adapter == name);
        adapter.map(String::as_str)
    }
}

/// All models that are served by pools of workers, by the names clients use.
#[derive(Debug, Default)]
pub struct Catalog {
    by_name: BTreeMap<String, Arc<FleetModel>>,
    models: Vec<Arc<FleetModel>>,
}

impl Catalog {
    /// Of several models with one name the first keeps it.
    pub fn new(models: Vec<Arc<FleetModel>>) -> Self {
        let mut by_name = BTreeMap::new();
        for model in &models {
            for name in model.names.iter().chain(&model.adapters) {
                by_name
                    .entry(name.clone())
                    .or_insert_with(|| Arc::clone(model));
            }
        }
        Self { by_name, models }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// The model of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<FleetModel>> {
        self.by_name.get(name)
    }

    /// Every model, once.
    pub fn models(&self) -> &[Arc<FleetModel>] {
        &self.models
    }

    /// All names, with their models.
    pub fn names(&self) -> impl Iterator<Item = (&str, &Arc<FleetModel>)> {
        self.by_name
            .iter()
            .map(|(name, model)| (name.as_str(), model))
    }

    /// The model meant by a request that names none: the only one.
    pub(crate) fn only(&self) -> Option<&Arc<FleetModel>> {
        match self.models.as_slice() {
            [model] => Some(model),
            _ => None,
        }
    }
}
