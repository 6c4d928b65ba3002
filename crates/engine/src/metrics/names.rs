//! The names of the engine's metrics. They are vLLM's wherever vLLM has the same thing, so that
//! dashboards, routers and autoscalers made for it work unchanged. Counters are exposed with `_total`.

pub(super) const RUNNING: &str = "vllm:num_requests_running";
pub(super) const WAITING: &str = "vllm:num_requests_waiting";
pub(super) const WAITING_BY_REASON: &str = "vllm:num_requests_waiting_by_reason";
pub(super) const KV_CACHE_USAGE: &str = "vllm:kv_cache_usage_perc";
pub(super) const CACHE_CONFIG: &str = "vllm:cache_config_info";
pub(super) const PREFIX_CACHE_QUERIES: &str = "vllm:prefix_cache_queries";
pub(super) const PREFIX_CACHE_HITS: &str = "vllm:prefix_cache_hits";
pub(super) const PREEMPTIONS: &str = "vllm:num_preemptions";
pub(super) const PROMPT_TOKENS: &str = "vllm:prompt_tokens";
pub(super) const PROMPT_TOKENS_BY_SOURCE: &str = "vllm:prompt_tokens_by_source";
pub(super) const PROMPT_TOKENS_CACHED: &str = "vllm:prompt_tokens_cached";
pub(super) const GENERATION_TOKENS: &str = "vllm:generation_tokens";
pub(super) const REQUEST_SUCCESS: &str = "vllm:request_success";
pub(super) const ADMISSION_REJECTIONS: &str = "vllm:admission_rejections";
pub(super) const TIME_TO_FIRST_TOKEN: &str = "vllm:time_to_first_token_seconds";
pub(super) const INTER_TOKEN_LATENCY: &str = "vllm:inter_token_latency_seconds";
pub(super) const TIME_PER_OUTPUT_TOKEN: &str = "vllm:request_time_per_output_token_seconds";
pub(super) const E2E_LATENCY: &str = "vllm:e2e_request_latency_seconds";
pub(super) const QUEUE_TIME: &str = "vllm:request_queue_time_seconds";
pub(super) const INFERENCE_TIME: &str = "vllm:request_inference_time_seconds";
pub(super) const PREFILL_TIME: &str = "vllm:request_prefill_time_seconds";
pub(super) const DECODE_TIME: &str = "vllm:request_decode_time_seconds";
pub(super) const ITERATION_TOKENS: &str = "vllm:iteration_tokens_total";
pub(super) const REQUEST_PROMPT_TOKENS: &str = "vllm:request_prompt_tokens";
pub(super) const REQUEST_GENERATION_TOKENS: &str = "vllm:request_generation_tokens";
pub(super) const REQUEST_PREEMPTIONS: &str = "vllm:request_num_preemptions";

pub(super) const SPEC_DRAFTS: &str = "vllm:spec_decode_num_drafts";
pub(super) const SPEC_DRAFT_TOKENS: &str = "vllm:spec_decode_num_draft_tokens";
pub(super) const SPEC_ACCEPTED_TOKENS: &str = "vllm:spec_decode_num_accepted_tokens";
pub(super) const SPEC_ACCEPTED_BY_POSITION: &str = "vllm:spec_decode_num_accepted_tokens_per_pos";

/// Ours: without it acceptance by position cannot be told when drafts differ in depth.
pub(super) const SPEC_DRAFTED_BY_POSITION: &str = "forespeak:spec_decode_num_draft_tokens_per_pos";

/// Ours: vLLM's depth is fixed.
pub(super) const SPEC_DEPTH: &str = "forespeak:speculation_depth";
pub(super) const SPEC_SPEEDUP: &str = "forespeak:speculation_expected_speedup";
pub(super) const SPEC_DECISIONS: &str = "forespeak:speculation_decisions";

/// Ours: vLLM does not say when a slow reader lost KV events.
pub(super) const KV_EVENT_BATCHES_DROPPED: &str = "forespeak:kv_event_batches_dropped";

/// Ours: blocks beyond the executor's memory.
pub(super) const STORE_OFFERED: &str = "forespeak:kv_store_blocks_offered";
pub(super) const STORE_STORED: &str = "forespeak:kv_store_blocks_stored";
pub(super) const STORE_STORED_BYTES: &str = "forespeak:kv_store_stored_bytes";
pub(super) const STORE_LOADED: &str = "forespeak:kv_store_blocks_loaded";
pub(super) const STORE_LOADED_BYTES: &str = "forespeak:kv_store_loaded_bytes";
pub(super) const STORE_LOOKUPS: &str = "forespeak:kv_store_lookups";
pub(super) const STORE_REJECTED: &str = "forespeak:kv_store_blocks_rejected";
pub(super) const STORE_LOAD_TIME: &str = "forespeak:kv_store_load_seconds";
pub(super) const STORE_SAVED: &str = "forespeak:kv_store_saved_seconds";

pub(super) const LABEL_MODEL: &str = "model_name";
pub(super) const LABEL_ENGINE: &str = "engine";
pub(super) const LABEL_REASON: &str = "reason";
pub(super) const LABEL_SOURCE: &str = "source";
pub(super) const LABEL_FINISHED_REASON: &str = "finished_reason";
pub(super) const LABEL_TIER: &str = "tier";
pub(super) const LABEL_OUTCOME: &str = "outcome";
pub(super) const LABEL_POSITION: &str = "position";
