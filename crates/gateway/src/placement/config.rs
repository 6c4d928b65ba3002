//! How a pool is set up: plain values, filled from a configuration or from flags.

use fleet::FleetConfig;
use fleet::health::PanicConfig;
use routing::Policy;
use routing::admission::{Patience, QueueLimits, UsageLimits};
use routing::index::{DEFAULT_BYTE_CAP, LoadableWorth};
use routing::keys::{DEFAULT_BLOCK_TOKENS, KeySeed};

use super::metrics::PlacementMetrics;
use super::recycling::RecyclingConfig;

/// What the memory of prompts takes at most unless configured: the last few thousand chats of ten
/// thousand tokens.
pub const DEFAULT_MEMO_BYTES: usize = 64 << 20;

/// Decisions kept for whoever asks why, unless configured: some seconds of a busy gateway.
pub const DEFAULT_DECISIONS_KEPT: usize = 256;

/// How a pool is set up.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// What it is called; its workers carry the same name in their `pool`.
    pub name: String,
    /// Who its workers are and how they are watched.
    pub fleet: FleetConfig,
    /// How a worker is chosen.
    pub policy: Policy,
    /// How long requests may wait for room.
    pub patience: Patience,
    /// Up to which KV usage they may go at all.
    pub usage_limits: UsageLimits,
    /// How many may.
    pub queue: QueueLimits,
    /// When suspicion against workers is set aside.
    pub panic: PanicConfig,
    /// Tokens that share a key: a divisor of the workers' block size.
    pub block_tokens: usize,
    /// The most bytes of the prefix index.
    pub index_bytes: usize,
    /// What blocks are worth that a worker must load first.
    pub loadable_worth: LoadableWorth,
    /// The most bytes of the memory of prompts.
    pub memo_bytes: usize,
    /// Decisions kept to be shown.
    pub decisions_kept: usize,
    /// When and how workers are restarted; `None`: never.
    pub recycling: Option<RecyclingConfig>,
    /// The seed of prefix keys that other gateways use, too, so that they can be told where prompts went; `None`: one of
    /// its own, and nobody is told.
    pub shared_seed: Option<KeySeed>,
    /// Where it counts; pools of one gateway share them.
    pub metrics: PlacementMetrics,
}

impl PoolConfig {
    /// The defaults under this name.
    pub fn new(name: impl Into<String>, fleet: FleetConfig) -> Self {
        Self {
            name: name.into(),
            fleet,
            policy: Policy::default(),
            patience: Patience::default(),
            usage_limits: UsageLimits::default(),
            queue: QueueLimits::default(),
            panic: PanicConfig::default(),
            block_tokens: DEFAULT_BLOCK_TOKENS,
            index_bytes: DEFAULT_BYTE_CAP,
            loadable_worth: LoadableWorth::default(),
            memo_bytes: DEFAULT_MEMO_BYTES,
            decisions_kept: DEFAULT_DECISIONS_KEPT,
            recycling: None,
            shared_seed: None,
            metrics: PlacementMetrics::default(),
        }
    }
}
