//! `/metrics` under the names that vLLM 0.32 uses.

use std::fmt::Write;

use super::books::Timing;
use super::{Books, MockConfig};

/// The page.
pub(super) fn page(config: &MockConfig, books: &Books) -> String {
    let labels = format!(r#"{{engine="0",model_name="{}"}}"#, config.model);
    let mut page = format!(
        "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {:?}\n",
        books.started_at
    );
    let mut sample = |kind: &str, name: &str, value: f64| {
        let _ = writeln!(
            page,
            "# TYPE vllm:{name} {kind}\nvllm:{name}{labels} {value:?}"
        );
    };
    sample("gauge", "num_requests_running", f64::from(books.running));
    sample("gauge", "num_requests_waiting", f64::from(books.waiting));
    sample("gauge", "kv_cache_usage_perc", books.kv_usage);
    let machine = &books.machine;
    for (name, value) in [
        ("prefix_cache_queries_total", machine.prompt_tokens),
        ("prefix_cache_hits_total", machine.cached_tokens),
        ("prompt_tokens_total", machine.prompt_tokens),
        ("prompt_tokens_cached_total", machine.cached_tokens),
        ("generation_tokens_total", machine.output_tokens),
        ("num_preemptions_total", machine.preemptions),
    ] {
        sample("counter", name, value as f64);
    }
    let mut histogram = |name: &str, timing: Timing| {
        let _ = writeln!(
            page,
            "# TYPE vllm:{name} histogram\nvllm:{name}_sum{labels} {:?}\nvllm:{name}_count{labels} {:?}",
            timing.sum, timing.count as f64
        );
    };
    let inter_token = Timing {
        sum: machine.inter_token_time.as_secs_f64(),
        count: machine.inter_token_count,
    };
    histogram("time_to_first_token_seconds", books.ttft);
    histogram("inter_token_latency_seconds", inter_token);
    histogram("e2e_request_latency_seconds", books.end_to_end);
    histogram("request_queue_time_seconds", books.queue);
    histogram("request_prefill_time_seconds", books.prefill);
    histogram(
        "request_prefill_kv_computed_tokens",
        Timing {
            // When a request ends, as its time is: who divides one by the other gets a speed.
            sum: books.computed_tokens as f64,
            count: books.prefill.count,
        },
    );
    histogram(
        "iteration_tokens_total",
        Timing {
            sum: (machine.prefill_tokens + machine.output_tokens) as f64,
            count: books.steps,
        },
    );
    let model = &config.model;
    for (reason, count) in [
        ("stop", books.stopped),
        ("length", books.length),
        ("abort", books.aborted),
    ] {
        let _ = writeln!(
            page,
            r#"vllm:request_success_total{{engine="0",finished_reason="{reason}",model_name="{model}"}} {:?}"#,
            count as f64
        );
    }
    let worker = &config.worker;
    let _ = writeln!(
        page,
        r#"vllm:cache_config_info{{block_size="{}",enable_prefix_caching="True",engine="0",kv_cache_size_tokens="{}",num_gpu_blocks="{}"}} 1.0"#,
        worker.block_tokens,
        worker.kv_blocks() * u64::from(worker.block_tokens),
        worker.kv_blocks()
    );
    page
}
