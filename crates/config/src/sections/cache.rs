use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::secret::Secret;
use crate::time::Time;

/// Answers that are given again to whoever asks the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Cache {
    /// Where they are kept: `off`, `memory`, or an address such as `redis://host:6379` that gateways share, with memory
    /// in front of it. Also `rediss://`, `unix://`, `redis-cluster://a:1,b:2` and `redis-sentinel://a:1,b:2/service`.
    pub store: String,
    /// The same, where the address holds a password.
    pub store_url: Option<Secret>,
    /// What the keys and seals of entries are made from. Gateways that share a store need the same, and none can do
    /// without it.
    pub secret: Option<Secret>,
    /// Most bytes in memory; 0 with Redis keeps nothing here.
    pub memory_bytes: u64,
    /// Which answers are kept, unless a tenant has rules of its own.
    #[serde(flatten)]
    pub rules: CacheRules,
    /// What a million tokens cost, to tell what was saved, of models that say nothing else.
    pub prices: Prices,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            store: Self::MEMORY.to_owned(),
            store_url: None,
            secret: None,
            memory_bytes: 256 << 20,
            rules: CacheRules::default(),
            prices: Prices::default(),
        }
    }
}

impl Cache {
    /// Nothing is kept.
    pub const OFF: &str = "off";
    /// Kept in this process.
    pub const MEMORY: &str = "memory";

    /// Where answers are kept, its password included.
    pub fn store(&self) -> &str {
        let kept = self.store_url.as_ref().and_then(Secret::reveal);
        kept.unwrap_or(&self.store)
    }
}

/// Which answers are kept. What a tenant leaves out is as the section `cache` says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CacheRules {
    /// `off`, `deterministic` (temperature 0, or a seed) or `everything`.
    pub mode: Option<CacheMode>,
    /// With `everything`: how many answers to one question take turns.
    pub variants: Option<u8>,
    /// How long an answer is good for.
    pub ttl: Option<Time>,
    /// The largest answer that is kept.
    pub max_entry_bytes: Option<usize>,
    /// Whether texts that differ only in how Unicode composes their characters are the same question.
    pub normalise_unicode: Option<bool>,
    /// The routes whose answers are kept; all if left out.
    pub routes: Option<Vec<CachedRoute>>,
}

impl CacheRules {
    /// With the gaps filled from others.
    #[must_use]
    pub fn or(&self, others: &Self) -> Self {
        Self {
            mode: self.mode.or(others.mode),
            variants: self.variants.or(others.variants),
            ttl: self.ttl.or(others.ttl),
            max_entry_bytes: self.max_entry_bytes.or(others.max_entry_bytes),
            normalise_unicode: self.normalise_unicode.or(others.normalise_unicode),
            routes: self.routes.clone().or_else(|| others.routes.clone()),
        }
    }

    /// How long an answer is good for.
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl.map(Duration::from)
    }
}

/// Which answers are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CacheMode {
    /// None.
    Off,
    /// Those that asking again would give again.
    Deterministic,
    /// All.
    Everything,
}

/// A route whose answers can be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CachedRoute {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
}

/// What a million tokens cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Prices {
    /// Of prompts.
    pub prompt: f64,
    /// Of answers.
    pub completion: f64,
}
