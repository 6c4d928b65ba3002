//! How large the engine is and how much it takes into one step.

use model::BLOCK_TOKENS;

use crate::drafting::SpeculationConfig;
use crate::error::StartError;

/// Sizes of an engine. [`EngineConfig::default`] suits a small model on a small machine; the caller
/// sets at least `model_name`, `max_model_len` and `num_blocks` from the model and the memory.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineConfig {
    /// The label `model_name` of all metrics.
    pub model_name: String,
    /// Most tokens of prompt and answer together.
    pub max_model_len: usize,
    /// KV blocks of [`BLOCK_TOKENS`] tokens that the executor has room for.
    pub num_blocks: usize,
    /// Most sequences (choices) in one step.
    pub max_num_seqs: usize,
    /// Most rows in one step; a long prompt is read in chunks of at most so many tokens.
    pub max_num_batched_tokens: usize,
    /// Most requests that wait for their first step; one more is refused.
    pub max_queued: usize,
    /// Whether computed blocks are kept and shared between requests.
    pub enable_prefix_caching: bool,
    /// How many batches of KV events are kept for a slow reader; 0 turns the events off.
    pub kv_event_buffer: usize,
    /// The label `cache_dtype` of `vllm:cache_config_info`.
    pub cache_dtype: String,
    /// Whether and how to speculate; can be changed while the engine runs.
    pub speculation: SpeculationConfig,
    /// Seeds of requests that bring none come from this one. `None`: from chance.
    pub seed: Option<u64>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            model_name: "default".to_owned(),
            max_model_len: 4096,
            num_blocks: 1024,
            max_num_seqs: 64,
            max_num_batched_tokens: 512,
            max_queued: 1024,
            enable_prefix_caching: true,
            kv_event_buffer: 0,
            cache_dtype: "float16".to_owned(),
            speculation: SpeculationConfig::OFF,
            seed: None,
        }
    }
}

impl EngineConfig {
    /// Most tokens that one sequence can ever hold: the model's length, or all blocks if they are fewer.
    pub fn longest_sequence(&self) -> usize {
        self.max_model_len
            .min(self.num_blocks.saturating_mul(BLOCK_TOKENS))
    }

    /// Refuses sizes with which some request could wait for ever.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        let at_least_one = [
            ("max_model_len", self.max_model_len),
            ("num_blocks", self.num_blocks),
            ("max_num_seqs", self.max_num_seqs),
            ("max_num_batched_tokens", self.max_num_batched_tokens),
            ("max_queued", self.max_queued),
        ];
        for (name, value) in at_least_one {
            if value == 0 {
                return Err(StartError::Zero { name });
            }
        }
        if self.max_num_batched_tokens < self.max_num_seqs {
            return Err(StartError::StepTooSmall {
                tokens: self.max_num_batched_tokens,
                seqs: self.max_num_seqs,
            });
        }
        Ok(())
    }
}
