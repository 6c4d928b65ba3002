//! Every metric name that is read from a worker, and nothing else.
//!
//! A quantity may have several names, because engines rename them: the one with the lowest rank that a
//! page prints wins. vLLM renamed its KV usage in 0.9.2 and dropped the old name in 0.12, and its
//! inter-token latency in 0.11 (old name gone in 0.15); both pairs overlap for some versions, so they
//! must not be added up.

/// Which family of names a page uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// vLLM, and everything that speaks like it: `forespeak engine` for one.
    Vllm,
    /// SGLang.
    Sglang,
    /// llama.cpp's server.
    LlamaCpp,
}

impl Dialect {
    /// What all names of the dialect begin with.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Vllm => "vllm:",
            Self::Sglang => "sglang:",
            Self::LlamaCpp => "llamacpp:",
        }
    }

    /// The names, without the prefix.
    pub const fn names(self) -> &'static [Name] {
        match self {
            Self::Vllm => VLLM,
            Self::Sglang => SGLANG,
            Self::LlamaCpp => LLAMA_CPP,
        }
    }

    /// All dialects.
    pub const ALL: [Self; 3] = [Self::Vllm, Self::Sglang, Self::LlamaCpp];
}

/// A name and what it stands for.
#[derive(Debug, Clone, Copy)]
pub struct Name {
    /// Without the dialect's prefix.
    pub text: &'static str,
    /// What it measures.
    pub quantity: Quantity,
    /// Lower is looked up first.
    pub rank: u8,
}

/// What a sample measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Quantity {
    /// Share of the KV cache in use, 0 to 1.
    KvUsage,
    /// Requests being worked on.
    Running,
    /// Requests waiting.
    Waiting,
    /// Requests swapped out to host memory (vLLM 0.6): they wait, too.
    Swapped,
    /// Tokens the KV cache holds.
    CapacityTokens,
    /// Tokens in a block.
    BlockSize,
    /// vLLM's labels of its cache configuration.
    CacheConfig,
    /// vLLM's sleep state, one sample per state.
    SleepState,
    /// Tokens looked up in the prefix cache.
    PrefixQueries,
    /// Tokens found there.
    PrefixHits,
    /// Tokens found there, where queries count only the others (llama.cpp).
    PrefixHitsBeside,
    /// Share found, as a gauge of the engine's own.
    PrefixHitRate,
    /// Requests thrown out for want of KV cache.
    Preemptions,
    /// Prompt tokens.
    PromptTokens,
    /// Generated tokens.
    GenerationTokens,
    /// Engine steps.
    Steps,
    /// Sum of times to first token.
    TtftSum,
    /// Number of them.
    TtftCount,
    /// Sum of times between tokens.
    ItlSum,
    /// Number of them.
    ItlCount,
    /// Sum of times in the queue.
    QueueSum,
    /// Number of them.
    QueueCount,
    /// Sum of times in prefill.
    PrefillSum,
    /// Number of them.
    PrefillCount,
    /// Tokens computed in prefill, cached ones left out.
    PrefillTokens,
    /// Drafts.
    Drafts,
    /// Tokens drafted.
    DraftTokens,
    /// Tokens accepted.
    AcceptedTokens,
    /// Tokens accepted at the position in a label.
    AcceptedAtPosition,
    /// Share accepted, as a gauge of the engine's own.
    AcceptanceRate,
}

/// How many quantities there are.
pub const QUANTITIES: usize = Quantity::AcceptanceRate as usize + 1;

const fn name(text: &'static str, quantity: Quantity, rank: u8) -> Name {
    Name {
        text,
        quantity,
        rank,
    }
}

/// vLLM 0.6 to 0.32. Rank 0 is today's name.
const VLLM: &[Name] = &[
    name("kv_cache_usage_perc", Quantity::KvUsage, 0),
    name("gpu_cache_usage_perc", Quantity::KvUsage, 1),
    name("num_requests_running", Quantity::Running, 0),
    name("num_requests_waiting", Quantity::Waiting, 0),
    name("num_requests_swapped", Quantity::Swapped, 1),
    name("cache_config_info", Quantity::CacheConfig, 0),
    name("engine_sleep_state", Quantity::SleepState, 0),
    name("prefix_cache_queries_total", Quantity::PrefixQueries, 0),
    name("gpu_prefix_cache_queries_total", Quantity::PrefixQueries, 1),
    name("prefix_cache_hits_total", Quantity::PrefixHits, 0),
    name("gpu_prefix_cache_hits_total", Quantity::PrefixHits, 1),
    name("gpu_prefix_cache_hit_rate", Quantity::PrefixHitRate, 1),
    name("num_preemptions_total", Quantity::Preemptions, 0),
    name("prompt_tokens_total", Quantity::PromptTokens, 0),
    name("generation_tokens_total", Quantity::GenerationTokens, 0),
    name("iteration_tokens_total_count", Quantity::Steps, 0),
    name("time_to_first_token_seconds_sum", Quantity::TtftSum, 0),
    name("time_to_first_token_seconds_count", Quantity::TtftCount, 0),
    name("inter_token_latency_seconds_sum", Quantity::ItlSum, 0),
    name("inter_token_latency_seconds_count", Quantity::ItlCount, 0),
    name("time_per_output_token_seconds_sum", Quantity::ItlSum, 1),
    name("time_per_output_token_seconds_count", Quantity::ItlCount, 1),
    name("request_queue_time_seconds_sum", Quantity::QueueSum, 0),
    name("request_queue_time_seconds_count", Quantity::QueueCount, 0),
    name("request_prefill_time_seconds_sum", Quantity::PrefillSum, 0),
    name(
        "request_prefill_time_seconds_count",
        Quantity::PrefillCount,
        0,
    ),
    name(
        "request_prefill_kv_computed_tokens_sum",
        Quantity::PrefillTokens,
        0,
    ),
    name("spec_decode_num_drafts_total", Quantity::Drafts, 0),
    name(
        "spec_decode_num_draft_tokens_total",
        Quantity::DraftTokens,
        0,
    ),
    name(
        "spec_decode_num_accepted_tokens_total",
        Quantity::AcceptedTokens,
        0,
    ),
    name(
        "spec_decode_num_accepted_tokens_per_pos_total",
        Quantity::AcceptedAtPosition,
        0,
    ),
    name(
        "spec_decode_draft_acceptance_rate",
        Quantity::AcceptanceRate,
        1,
    ),
];

const SGLANG: &[Name] = &[
    name("token_usage", Quantity::KvUsage, 0),
    name("num_running_reqs", Quantity::Running, 0),
    name("num_queue_reqs", Quantity::Waiting, 0),
    name("max_total_num_tokens", Quantity::CapacityTokens, 0),
    name("page_size", Quantity::BlockSize, 0),
    name("cached_tokens_total", Quantity::PrefixHits, 0),
    name("cache_hit_rate", Quantity::PrefixHitRate, 0),
    name("prompt_tokens_total", Quantity::PromptTokens, 0),
    name("generation_tokens_total", Quantity::GenerationTokens, 0),
    name("time_to_first_token_seconds_sum", Quantity::TtftSum, 0),
    name("time_to_first_token_seconds_count", Quantity::TtftCount, 0),
    name("inter_token_latency_seconds_sum", Quantity::ItlSum, 0),
    name("inter_token_latency_seconds_count", Quantity::ItlCount, 0),
    name("queue_time_seconds_sum", Quantity::QueueSum, 0),
    name("queue_time_seconds_count", Quantity::QueueCount, 0),
    name("spec_accept_rate", Quantity::AcceptanceRate, 0),
];

const LLAMA_CPP: &[Name] = &[
    name("kv_cache_usage_ratio", Quantity::KvUsage, 0),
    name("requests_processing", Quantity::Running, 0),
    name("requests_deferred", Quantity::Waiting, 0),
    name("prompt_tokens_total", Quantity::PromptTokens, 0),
    name("prompt_tokens_cached_total", Quantity::PrefixHitsBeside, 0),
    name("tokens_predicted_total", Quantity::GenerationTokens, 0),
    name("n_decode_total", Quantity::Steps, 0),
    name("prompt_seconds_total", Quantity::PrefillSum, 0),
    name("tokens_predicted_seconds_total", Quantity::ItlSum, 0),
    name("spec_decode_num_drafts_total", Quantity::Drafts, 0),
    name(
        "spec_decode_num_draft_tokens_total",
        Quantity::DraftTokens,
        0,
    ),
    name(
        "spec_decode_num_accepted_tokens_total",
        Quantity::AcceptedTokens,
        0,
    ),
    name(
        "spec_decode_num_accepted_tokens_per_pos_total",
        Quantity::AcceptedAtPosition,
        0,
    ),
];

/// Labels that are read.
pub mod labels {
    /// SGLang: ranks that share one cache and print the same numbers.
    pub const TP_RANK: &str = "tp_rank";
    /// SGLang: likewise.
    pub const PP_RANK: &str = "pp_rank";
    /// Position of an accepted token in its draft.
    pub const POSITION: &str = "position";
    /// Which sleep state a sample is about.
    pub const SLEEP_STATE: &str = "sleep_state";
    /// Tokens in a block.
    pub const BLOCK_SIZE: &str = "block_size";
    /// Blocks in the cache.
    pub const NUM_GPU_BLOCKS: &str = "num_gpu_blocks";
    /// Tokens in the cache.
    pub const KV_CACHE_SIZE_TOKENS: &str = "kv_cache_size_tokens";
    /// Whether prefixes are cached.
    pub const ENABLE_PREFIX_CACHING: &str = "enable_prefix_caching";
}

/// Values of [`labels::SLEEP_STATE`].
pub mod sleep_states {
    /// Serving.
    pub const AWAKE: &str = "awake";
    /// Weights in host memory.
    pub const WEIGHTS_OFFLOADED: &str = "weights_offloaded";
    /// Weights gone.
    pub const DISCARD_ALL: &str = "discard_all";
}

/// When the worker's process started: another value is another process. Printed by Python's client.
pub const PROCESS_START: &str = "process_start_time_seconds";
