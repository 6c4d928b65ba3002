use std::path::PathBuf;
use std::time::Duration;

use routing::Policy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::secret::Secret;
use crate::time::Time;

/// A group of equal workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Pool {
    /// What models call it.
    pub name: String,
    /// How a worker is chosen: round_robin, least_loaded, sticky, prefix, lmetric or fit.
    #[schemars(with = "PolicyName")]
    pub policy: Policy,
    /// Workers known from the start.
    pub workers: Vec<Worker>,
    /// Names that resolve to more.
    pub dns: Vec<Dns>,
    /// A file that lists more, a JSON list of addresses or objects; it is watched.
    pub file: Option<PathBuf>,
    /// How often each worker's metrics are read.
    pub scrape_every: Time,
    /// How long that may take.
    pub scrape_timeout: Time,
    /// How often each worker is asked whether it lives.
    pub probe_every: Time,
    /// Whether the workers schedule by priority (vLLM: `--scheduling-policy priority`); only then they are told.
    pub forwards_priority: bool,
    /// Tokens that share an entry of the prefix index: a divisor of the workers' block size.
    pub block_tokens: usize,
    /// The most bytes of the prefix index.
    pub index_bytes: usize,
    /// What cached blocks are worth that a worker must load before it can use them.
    pub loadable: Loadable,
    /// How long a worker that was removed may take to finish its requests.
    pub drain_timeout: Time,
    /// When a worker is out, back, stuck or warm.
    pub health: Health,
    /// How long a request may take, part by part.
    pub timeouts: Timeouts,
    /// Who may go now, who waits and who is refused.
    pub admission: Admission,
    /// How often requests that a worker failed may be tried elsewhere.
    pub retries: Retries,
    /// What to do with workers that leak or are stuck; nothing if left out.
    pub recycling: Option<Recycling>,
}

impl Default for Pool {
    fn default() -> Self {
        let scrape = fleet::scrape::ScrapeConfig::default();
        let registry = fleet::registry::RegistryConfig::default();
        Self {
            name: String::new(),
            policy: Policy::default(),
            workers: Vec::new(),
            dns: Vec::new(),
            file: None,
            scrape_every: scrape.scrape_every.into(),
            scrape_timeout: scrape.scrape_timeout.into(),
            probe_every: scrape.probe_every.into(),
            forwards_priority: false,
            block_tokens: routing::keys::DEFAULT_BLOCK_TOKENS,
            index_bytes: routing::index::DEFAULT_BYTE_CAP,
            loadable: Loadable::default(),
            drain_timeout: registry.drain_at_most.into(),
            health: Health::default(),
            timeouts: Timeouts::default(),
            admission: Admission::default(),
            retries: Retries::default(),
            recycling: None,
        }
    }
}

/// What blocks are worth that a worker must load first (vLLM: `--kv-offloading-size`, a connector; here: `--kv-store`):
/// the share of computing them that loading saves, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Loadable {
    /// From the host's memory.
    pub host: f64,
    /// From a disk.
    pub storage: f64,
    /// From a store that workers share.
    pub shared: f64,
}

impl Default for Loadable {
    fn default() -> Self {
        let worth = routing::index::LoadableWorth::default();
        Self {
            host: worth.host,
            storage: worth.storage,
            shared: worth.shared,
        }
    }
}

/// The names of policies, for the schema alone.
#[derive(JsonSchema)]
#[schemars(rename = "Policy", rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
enum PolicyName {
    /// Each in turn.
    RoundRobin,
    /// Fewest requests for its weight.
    LeastLoaded,
    /// The same session to the same worker, within a bound on its load.
    Sticky,
    /// The longest cached prefix, within a load window.
    Prefix,
    /// New prompt tokens times batch size.
    Lmetric,
    /// Where it fits: cached prefix, predicted queueing and KV headroom in one cost.
    Fit,
}

/// A server that generates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Worker {
    /// `http://host:port`, without `/v1`.
    pub url: String,
    /// What it is called in logs, labels and admin calls; its host and port if left out.
    pub name: Option<String>,
    /// Sent to it as a bearer token.
    pub api_key: Option<Secret>,
    /// Where it publishes what its KV cache holds.
    pub events: Option<Events>,
    /// Where it tells that it is alive; `/health` if left out.
    pub health_path: Option<String>,
    /// Where its metrics are; `/metrics` if left out, empty if it has none.
    pub metrics_path: Option<String>,
}

/// A name that stands for workers, one per address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Dns {
    /// `http://name:port`, without `/v1`.
    pub url: String,
    /// How often to look.
    pub every: Time,
    /// Sent to each of them as a bearer token.
    pub api_key: Option<Secret>,
    /// Where they publish what their KV caches hold; `{host}` stands for the address.
    pub events: Option<Events>,
    /// Where they tell that they are alive; `/health` if left out.
    pub health_path: Option<String>,
    /// Where their metrics are; `/metrics` if left out, empty if they have none.
    pub metrics_path: Option<String>,
}

impl Default for Dns {
    fn default() -> Self {
        Self {
            url: String::new(),
            every: Duration::from_secs(10).into(),
            api_key: None,
            events: None,
            health_path: None,
            metrics_path: None,
        }
    }
}

/// Where a worker publishes what its KV cache holds (vLLM: `--kv-events-config`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Events {
    /// `tcp://host:port` of the first rank; the others follow on the next ports. `{host}` stands for the worker's host.
    pub endpoint: String,
    /// The same for replay. Without it, every message missed costs all exact knowledge of the worker.
    pub replay: Option<String>,
    /// Only messages whose topic begins like this.
    pub topic: String,
    /// Data-parallel ranks.
    pub ranks: u32,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            replay: None,
            topic: String::new(),
            ranks: 1,
        }
    }
}

/// When a worker is out, back, stuck or warm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Health {
    /// Age from which its metrics are not believed.
    pub stale_after: Time,
    /// Time without any movement while requests run. Longer than the longest prefill.
    pub wedged_after: Time,
    /// How long a newcomer takes to get its full share.
    pub slow_start: Time,
}

impl Default for Health {
    fn default() -> Self {
        let health = fleet::health::HealthConfig::default();
        Self {
            stale_after: health.stale_after.into(),
            wedged_after: health.wedged_after.into(),
            slow_start: health.slow_start.into(),
        }
    }
}

/// How long a request may take, part by part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Timeouts {
    /// For a connection to a worker.
    pub connect: Time,
    /// From sending the request to the first piece of the answer.
    pub first_token: Time,
    /// Between two pieces of a stream.
    pub between_tokens: Time,
    /// On top of what the tokens that were asked for take at the slowest rate measured.
    pub total_buffer: Time,
    /// No answer is given less.
    pub total_at_least: Time,
    /// None is given more.
    pub total_at_most: Time,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2).into(),
            first_token: Duration::from_secs(120).into(),
            between_tokens: Duration::from_secs(60).into(),
            total_buffer: Duration::from_secs(30).into(),
            total_at_least: Duration::from_secs(60).into(),
            total_at_most: Duration::from_secs(3600).into(),
        }
    }
}

/// Who may go now, who waits and who is refused.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Admission {
    /// Requests that may wait.
    pub queue: usize,
    /// Requests of one tenant that may wait.
    pub queue_per_tenant: usize,
    /// How long each priority may wait.
    pub patience: Patience,
    /// The share of the workers' KV cache in use beyond which low priority is refused.
    pub low_up_to: f64,
    /// The same for normal priority. High priority waits.
    pub normal_up_to: f64,
}

impl Default for Admission {
    fn default() -> Self {
        let queue = routing::admission::QueueLimits::default();
        let limits = routing::admission::UsageLimits::default();
        Self {
            queue: queue.requests,
            queue_per_tenant: queue.per_tenant,
            patience: Patience::default(),
            low_up_to: limits.low,
            normal_up_to: limits.normal,
        }
    }
}

/// How often requests that a worker failed may be tried elsewhere: without a bound, retries turn a bad minute into an outage.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Retries {
    /// Retries per request, in the long run.
    pub share: f64,
    /// Retries that are there from the start.
    pub at_start: u32,
    /// The most that a quiet time saves up.
    pub at_most: u32,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            share: 0.2,
            at_start: 20,
            at_most: 100,
        }
    }
}

/// How long each priority may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Patience {
    /// Of low priority.
    pub low: Time,
    /// Of normal priority.
    pub normal: Time,
    /// Of high priority.
    pub high: Time,
}

impl Default for Patience {
    fn default() -> Self {
        let patience = routing::admission::Patience::default();
        Self {
            low: patience.low.into(),
            normal: patience.normal.into(),
            high: patience.high.into(),
        }
    }
}

/// What to do with workers that leak or are stuck.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Recycling {
    /// What restarts a worker that was drained.
    pub hook: Hook,
    /// Share of the KV cache that nobody asked for and that counts as a leak.
    pub drift: f64,
    /// How long a leak must last.
    pub drift_for: Time,
    /// How long a standstill must last, on top of `health.wedged_after`.
    pub wedged_for: Time,
    /// Pause between two.
    pub pause: Time,
    /// Healthy workers that must remain.
    pub keep_healthy: usize,
    /// How long a worker may take to finish its requests before the hook.
    pub drain_timeout: Time,
    /// How long it may take to come back after the hook.
    pub absent_at_most: Time,
}

impl Default for Recycling {
    fn default() -> Self {
        let recycle = fleet::recycle::RecycleConfig::default();
        Self {
            hook: Hook::default(),
            drift: recycle.drift,
            drift_for: recycle.drift_for.into(),
            wedged_for: recycle.wedged_for.into(),
            pause: recycle.pause.into(),
            keep_healthy: recycle.keep_healthy,
            drain_timeout: recycle.drain_at_most.into(),
            absent_at_most: recycle.absent_at_most.into(),
        }
    }
}

/// What restarts a worker: `{ url = "http://…" }`, which is posted a JSON object with `pool`, `worker`, `url` and
/// `reason`, or `{ command = ["…"] }`, which finds them in `FORESPEAK_POOL`, `FORESPEAK_WORKER`, `FORESPEAK_URL` and
/// `FORESPEAK_REASON`. One of the two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Hook {
    /// Where to post to.
    pub url: Option<String>,
    /// A program and its arguments; no shell is involved.
    pub command: Vec<String>,
}
