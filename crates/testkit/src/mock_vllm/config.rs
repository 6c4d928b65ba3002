//! How a mock is set up.

use std::time::Duration;

use simulator::spec::WorkerSpec;

use super::Vocabulary;

/// What it serves, how fast, and where.
#[derive(Clone, Debug)]
pub struct MockConfig {
    /// The name of its model.
    pub model: String,
    /// Speeds and sizes of the simulated machine.
    pub worker: WorkerSpec,
    /// Text to tokens and back.
    pub vocabulary: Vocabulary,
    /// Most tokens of prompt and answer together.
    pub max_model_len: u64,
    /// Tokens after which an answer ends by itself, on average.
    pub mean_answer_tokens: u64,
    /// Whether the cache's changes are published.
    pub publishes_events: bool,
    /// Of HTTP; 0 takes a free one.
    pub port: u16,
    /// Of the published events; 0 takes a free one.
    pub events_port: u16,
    /// Of replays; 0 takes a free one.
    pub replay_port: u16,
    /// Of faults that come by chance.
    pub seed: u64,
}

impl Default for MockConfig {
    /// Quick enough for tests: a token a millisecond, 16,384 tokens of KV cache, no events.
    fn default() -> Self {
        Self {
            model: "mock".to_owned(),
            worker: WorkerSpec {
                prefill_tokens_per_second: 1.0e6,
                step_base: Duration::from_millis(1),
                step_per_sequence: Duration::from_micros(1),
                step_seconds_per_context_token: 0.0,
                kv_tokens: 16_384,
                ..WorkerSpec::a100_8b()
            },
            vocabulary: Vocabulary::Words,
            max_model_len: 16_384,
            mean_answer_tokens: 64,
            publishes_events: false,
            port: 0,
            events_port: 0,
            replay_port: 0,
            seed: 1,
        }
    }
}
