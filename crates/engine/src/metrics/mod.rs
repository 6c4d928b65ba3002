//! What the engine measures of itself.

mod bounds;
mod names;
mod observation;
mod speculation;
mod store;

use std::borrow::Cow;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use model::BLOCK_TOKENS;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use ::speculation::Decision;

use crate::config::EngineConfig;
use bounds::{DURATIONS, PREEMPTION_COUNTS, STEP_TOKENS, TOKEN_DURATIONS, one_two_five};
use names as n;
pub(crate) use observation::{Life, Occupancy, Outcome};
use speculation::SpeculationMetrics;
pub(crate) use store::{Rejection, StoreMetrics};

type Labels<const N: usize> = [(&'static str, &'static str); N];
type ConfigLabels = Vec<(&'static str, String)>;

/// The engine's metrics under vLLM's names, labelled with the model's name.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    running: Gauge,
    waiting: Gauge,
    waiting_for_capacity: Gauge,
    waiting_deferred: Gauge,
    kv_cache_usage: Gauge<f64, AtomicU64>,
    prefix_queries: Counter,
    prefix_hits: Counter,
    preemptions: Counter,
    prompt_tokens: Counter,
    prompt_computed: Counter,
    prompt_from_cache: Counter,
    prompt_tokens_cached: Counter,
    generation_tokens: Counter,
    outcomes: [Counter; Outcome::ALL.len()],
    queue_refusals: Counter,
    kv_events_dropped: Counter,
    time_to_first_token: Histogram,
    inter_token_latency: Histogram,
    time_per_output_token: Histogram,
    e2e_latency: Histogram,
    queue_time: Histogram,
    inference_time: Histogram,
    prefill_time: Histogram,
    decode_time: Histogram,
    iteration_tokens: Histogram,
    request_prompt_tokens: Histogram,
    request_generation_tokens: Histogram,
    request_preemptions: Histogram,
    speculation: SpeculationMetrics,
    store: StoreMetrics,
}

impl Metrics {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        let mut registry = Registry::with_labels(
            [
                (n::LABEL_MODEL, config.model_name.clone()),
                (n::LABEL_ENGINE, "0".to_owned()),
            ]
            .into_iter()
            .map(|(name, value)| (Cow::from(name), Cow::from(value))),
        );
        let r = &mut registry;
        register_config(r, config);
        let waiting_by: Family<Labels<1>, Gauge> = register(
            r,
            n::WAITING_BY_REASON,
            "Sequences that wait, by what they wait for",
            Family::default(),
        );
        let by_source: Family<Labels<1>, Counter> = register(
            r,
            n::PROMPT_TOKENS_BY_SOURCE,
            "Prompt tokens, by where their keys and values came from",
            Family::default(),
        );
        let success: Family<Labels<1>, Counter> = register(
            r,
            n::REQUEST_SUCCESS,
            "Choices that ended, by how",
            Family::default(),
        );
        let rejections: Family<Labels<1>, Counter> = register(
            r,
            n::ADMISSION_REJECTIONS,
            "Requests refused before they were queued",
            Family::default(),
        );
        let token_counts = || one_two_five(config.max_model_len);
        Self {
            running: register(r, n::RUNNING, "Sequences in the steps", Gauge::default()),
            waiting: register(r, n::WAITING, "Sequences that wait", Gauge::default()),
            waiting_for_capacity: waiting_by.get_or_create_owned(&[(n::LABEL_REASON, "capacity")]),
            waiting_deferred: waiting_by.get_or_create_owned(&[(n::LABEL_REASON, "deferred")]),
            kv_cache_usage: register(
                r,
                n::KV_CACHE_USAGE,
                "Share of KV blocks held by requests, 0 to 1",
                Gauge::default(),
            ),
            prefix_queries: counter(
                r,
                n::PREFIX_CACHE_QUERIES,
                "Tokens looked up in the prefix cache",
            ),
            prefix_hits: counter(r, n::PREFIX_CACHE_HITS, "Tokens found in the prefix cache"),
            preemptions: counter(
                r,
                n::PREEMPTIONS,
                "Sequences that lost their blocks to others",
            ),
            prompt_tokens: counter(r, n::PROMPT_TOKENS, "Prompt tokens read"),
            prompt_computed: by_source.get_or_create_owned(&[(n::LABEL_SOURCE, "local_compute")]),
            prompt_from_cache: by_source
                .get_or_create_owned(&[(n::LABEL_SOURCE, "local_cache_hit")]),
            prompt_tokens_cached: counter(
                r,
                n::PROMPT_TOKENS_CACHED,
                "Prompt tokens that came out of the prefix cache",
            ),
            generation_tokens: counter(r, n::GENERATION_TOKENS, "Tokens generated"),
            outcomes: Outcome::ALL
                .map(|(_, name)| success.get_or_create_owned(&[(n::LABEL_FINISHED_REASON, name)])),
            queue_refusals: rejections
                .get_or_create_owned(&[(n::LABEL_REASON, "max_num_queued_reqs")]),
            kv_events_dropped: counter(
                r,
                n::KV_EVENT_BATCHES_DROPPED,
                "Batches of KV events lost because their reader was too slow",
            ),
            time_to_first_token: histogram(
                r,
                n::TIME_TO_FIRST_TOKEN,
                "From submission to the first token",
                DURATIONS,
            ),
            inter_token_latency: histogram(
                r,
                n::INTER_TOKEN_LATENCY,
                "Between two tokens of a choice",
                TOKEN_DURATIONS,
            ),
            time_per_output_token: histogram(
                r,
                n::TIME_PER_OUTPUT_TOKEN,
                "Mean time of a token after the first, one value for each choice",
                TOKEN_DURATIONS,
            ),
            e2e_latency: histogram(r, n::E2E_LATENCY, "From submission to the end", DURATIONS),
            queue_time: histogram(
                r,
                n::QUEUE_TIME,
                "From submission to the first step",
                DURATIONS,
            ),
            inference_time: histogram(
                r,
                n::INFERENCE_TIME,
                "From the first step to the end",
                DURATIONS,
            ),
            prefill_time: histogram(
                r,
                n::PREFILL_TIME,
                "From the first step to the first token",
                DURATIONS,
            ),
            decode_time: histogram(
                r,
                n::DECODE_TIME,
                "From the first token to the last",
                DURATIONS,
            ),
            iteration_tokens: histogram(r, n::ITERATION_TOKENS, "Rows in a step", STEP_TOKENS),
            request_prompt_tokens: histogram(
                r,
                n::REQUEST_PROMPT_TOKENS,
                "Tokens of a prompt",
                token_counts(),
            ),
            request_generation_tokens: histogram(
                r,
                n::REQUEST_GENERATION_TOKENS,
                "Tokens of an answer",
                token_counts(),
            ),
            request_preemptions: histogram(
                r,
                n::REQUEST_PREEMPTIONS,
                "How often a choice was preempted",
                PREEMPTION_COUNTS,
            ),
            speculation: SpeculationMetrics::new(r),
            store: StoreMetrics::new(r),
            registry,
        }
    }

    /// Appends the metrics in Prometheus' text format, without the closing `# EOF`, so that others can
    /// follow.
    pub fn encode(&self, text: &mut String) {
        // Writing into a string cannot fail.
        let _ = encode_registry(text, &self.registry);
    }

    /// Sequences that are in the steps now.
    pub fn running(&self) -> usize {
        self.running.get().max(0) as usize
    }

    /// Sequences that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.get().max(0) as usize
    }

    /// Share of blocks held by requests, 0 to 1.
    pub fn kv_cache_usage(&self) -> f64 {
        self.kv_cache_usage.get()
    }

    /// Sequences that lost their blocks to others and had to be computed again.
    pub fn preemptions(&self) -> u64 {
        self.preemptions.get()
    }

    /// Prompt tokens read so far, out of the cache or computed.
    pub fn prompt_tokens(&self) -> u64 {
        self.prompt_tokens.get()
    }

    /// Tokens generated so far.
    pub fn generation_tokens(&self) -> u64 {
        self.generation_tokens.get()
    }

    /// Drafts verified so far.
    pub fn drafts(&self) -> u64 {
        self.speculation.drafts()
    }

    /// What was decided about the latest step that decoded.
    pub fn latest_decision(&self) -> Option<crate::Decision> {
        self.speculation.latest()
    }

    /// Tokens drafted and verified so far.
    pub fn draft_tokens(&self) -> u64 {
        self.speculation.draft_tokens()
    }

    /// Tokens of these that were accepted.
    pub fn accepted_tokens(&self) -> u64 {
        self.speculation.accepted_tokens()
    }

    /// KV blocks that were stored beyond the executor's memory, in any tier.
    pub fn stored_blocks(&self) -> u64 {
        self.store.stored_blocks()
    }

    /// KV blocks that were loaded from there.
    pub fn loaded_blocks(&self) -> u64 {
        self.store.loaded_blocks()
    }

    /// KV blocks that were found there and were not what they should be.
    pub fn flawed_blocks(&self) -> u64 {
        self.store.flawed_blocks()
    }

    pub(crate) fn store(&self) -> &StoreMetrics {
        &self.store
    }

    pub(crate) fn has_draft_model(&self) -> bool {
        self.speculation.has_model()
    }

    pub(crate) fn drafters_are(&self, has_model: bool, anybody: bool) {
        self.speculation.drafters_are(has_model, anybody);
    }

    pub(crate) fn decided(&self, decision: &Decision) {
        self.speculation.decided(decision);
    }

    pub(crate) fn verified(&self, drafted: usize, accepted: usize) {
        self.speculation.verified(drafted, accepted);
    }

    pub(crate) fn refused_for_queue(&self) {
        self.queue_refusals.inc();
    }

    pub(crate) fn kv_events_dropped(&self) {
        self.kv_events_dropped.inc();
    }

    pub(crate) fn occupied(&self, now: Occupancy) {
        self.running.set(now.running as i64);
        self.waiting.set((now.waiting + now.deferred) as i64);
        self.waiting_for_capacity.set(now.waiting as i64);
        self.waiting_deferred.set(now.deferred as i64);
        self.kv_cache_usage
            .set(now.held_blocks as f64 / now.blocks.max(1) as f64);
    }

    pub(crate) fn looked_up(&self, tokens: usize, hits: usize) {
        self.prefix_queries.inc_by(tokens as u64);
        self.prefix_hits.inc_by(hits as u64);
    }

    pub(crate) fn preempted(&self, sequences: usize) {
        self.preemptions.inc_by(sequences as u64);
    }

    pub(crate) fn stepped(&self, rows: usize) {
        self.iteration_tokens.observe(rows as f64);
    }

    pub(crate) fn prompt_read(&self, tokens: usize, cached: usize) {
        self.prompt_tokens.inc_by(tokens as u64);
        self.prompt_computed.inc_by((tokens - cached) as u64);
        self.prompt_from_cache.inc_by(cached as u64);
        self.prompt_tokens_cached.inc_by(cached as u64);
    }

    pub(crate) fn first_token(&self, since_submission: Duration) {
        self.generation_tokens.inc();
        self.time_to_first_token
            .observe(since_submission.as_secs_f64());
    }

    pub(crate) fn next_token(&self, since_last: Duration) {
        self.generation_tokens.inc();
        self.inter_token_latency.observe(since_last.as_secs_f64());
    }

    pub(crate) fn ended(&self, outcome: Outcome, life: &Life) {
        for (counter, (which, _)) in self.outcomes.iter().zip(Outcome::ALL) {
            if which == outcome {
                counter.inc();
            }
        }
        self.e2e_latency.observe(life.total.as_secs_f64());
        self.request_prompt_tokens
            .observe(life.prompt_tokens as f64);
        self.request_generation_tokens
            .observe(life.generated as f64);
        self.request_preemptions.observe(life.preemptions as f64);
        if let Some(queued) = life.queued {
            self.queue_time.observe(queued.as_secs_f64());
        }
        if let Some(prefill) = life.prefill {
            self.prefill_time.observe(prefill.as_secs_f64());
            let decode = life.decode.unwrap_or_default();
            self.decode_time.observe(decode.as_secs_f64());
            self.inference_time
                .observe((prefill + decode).as_secs_f64());
            if life.generated > 1 {
                let tokens = (life.generated - 1) as f64;
                self.time_per_output_token
                    .observe(decode.as_secs_f64() / tokens);
            }
        }
    }
}

fn register_config(registry: &mut Registry, config: &EngineConfig) {
    let tokens = config.num_blocks * BLOCK_TOKENS;
    let labels = vec![
        ("block_size", BLOCK_TOKENS.to_string()),
        ("hash_block_size", BLOCK_TOKENS.to_string()),
        ("num_gpu_blocks", config.num_blocks.to_string()),
        ("kv_cache_size_tokens", tokens.to_string()),
        (
            "kv_cache_max_concurrency",
            format!("{:.2}", tokens as f64 / config.max_model_len as f64),
        ),
        (
            "enable_prefix_caching",
            // As Python writes it, because that is what readers of this label compare with.
            if config.enable_prefix_caching {
                "True"
            } else {
                "False"
            }
            .to_owned(),
        ),
        ("prefix_caching_hash_algo", "blake3".to_owned()),
        ("cache_dtype", config.cache_dtype.clone()),
    ];
    let info: Family<ConfigLabels, Gauge> = register(
        registry,
        n::CACHE_CONFIG,
        "How the KV cache is set up",
        Family::default(),
    );
    info.get_or_create(&labels).set(1);
}

fn register<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

fn counter(registry: &mut Registry, name: &str, help: &str) -> Counter {
    register(registry, name, help, Counter::default())
}

fn histogram(
    registry: &mut Registry,
    name: &str,
    help: &str,
    bounds: impl IntoIterator<Item = f64>,
) -> Histogram {
    register(registry, name, help, Histogram::new(bounds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(metrics: &Metrics) -> String {
        let mut text = String::new();
        metrics.encode(&mut text);
        text
    }

    #[test]
    fn metrics_are_exposed_under_the_names_that_tools_for_vllm_expect() {
        let metrics = Metrics::new(&EngineConfig {
            model_name: "m".to_owned(),
            ..EngineConfig::default()
        });
        metrics.occupied(Occupancy {
            running: 2,
            waiting: 3,
            deferred: 1,
            held_blocks: 512,
            blocks: 1024,
        });
        metrics.looked_up(100, 32);
        metrics.ended(
            Outcome::Length,
            &Life {
                prompt_tokens: 10,
                generated: 5,
                ..Life::default()
            },
        );
        let text = text(&metrics);
        for line in [
            r#"vllm:num_requests_running{model_name="m",engine="0"} 2"#,
            r#"vllm:num_requests_waiting{model_name="m",engine="0"} 4"#,
            r#"vllm:num_requests_waiting_by_reason{model_name="m",engine="0",reason="capacity"} 3"#,
            r#"vllm:kv_cache_usage_perc{model_name="m",engine="0"} 0.5"#,
            r#"vllm:prefix_cache_hits_total{model_name="m",engine="0"} 32"#,
            r#"vllm:request_success_total{model_name="m",engine="0",finished_reason="length"} 1"#,
            r#"vllm:request_success_total{model_name="m",engine="0",finished_reason="abort"} 0"#,
            r#"vllm:request_generation_tokens_bucket{model_name="m",engine="0",le="5.0"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert!(text.contains(r#"num_gpu_blocks="1024""#));
        assert!(!text.contains("# EOF"));
    }
}
