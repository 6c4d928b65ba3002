//! What is read from the pages of engines old and new.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::time::Duration;

use forespeak_fleet::exposition::Samples;
use forespeak_fleet::observe::names::Name;
use forespeak_fleet::observe::{Dialect, Observation, SleepState};

const VLLM_TODAY: &str = include_str!("fixtures/vllm_0_32.prom");
const VLLM_0_10: &str = include_str!("fixtures/vllm_0_10.prom");
const VLLM_0_6: &str = include_str!("fixtures/vllm_0_6.prom");
const SGLANG: &str = include_str!("fixtures/sglang.prom");
const LLAMA_CPP: &str = include_str!("fixtures/llama_cpp.prom");

fn names_on(pages: &[&'static str]) -> BTreeSet<&'static str> {
    let samples = pages.iter().flat_map(|page| Samples::new(page));
    samples.map(|sample| sample.unwrap().name).collect()
}

#[test]
fn every_name_we_read_is_printed_by_some_version() {
    let printed = names_on(&[VLLM_TODAY, VLLM_0_10, VLLM_0_6, SGLANG, LLAMA_CPP]);
    for dialect in Dialect::ALL {
        for Name { text, .. } in dialect.names() {
            let full = format!("{}{text}", dialect.prefix());
            assert!(
                printed.contains(full.as_str()),
                "{full} is read but never printed"
            );
        }
    }
}

#[test]
fn every_first_choice_for_vllm_is_printed_today() {
    let printed = names_on(&[VLLM_TODAY]);
    for Name { text, .. } in Dialect::Vllm.names().iter().filter(|name| name.rank == 0) {
        let full = format!("vllm:{text}");
        assert!(
            printed.contains(full.as_str()),
            "{full} is not what vLLM prints today"
        );
    }
}

#[test]
fn todays_vllm_is_read_in_full() {
    let seen = Observation::from_page(VLLM_TODAY).unwrap();
    assert_eq!(seen.dialect, Dialect::Vllm);
    assert_eq!(seen.ranks, 1);
    assert_eq!(seen.kv_usage, Some(0.25));
    assert_eq!((seen.running, seen.waiting), (Some(7), Some(2)));
    assert_eq!(seen.cache.capacity_tokens, Some(32_768));
    assert_eq!(seen.cache.block_size, Some(32));
    assert_eq!(seen.cache.prefix_caching, Some(true));
    assert_eq!(seen.kv_used_tokens(), Some(8_192));
    assert_eq!(seen.sleep, Some(SleepState::Awake));
    let counters = &seen.counters;
    assert_eq!(counters.prefix_queries, Some(6000.0));
    assert_eq!(counters.prefix_hits, Some(2000.0));
    assert_eq!(counters.preemptions, Some(4.0));
    assert_eq!(counters.steps, Some(900.0));
    assert_eq!(counters.ttft.unwrap().count, 20.0);
    assert_eq!(counters.itl.unwrap().sum, 30.0);
    assert_eq!(counters.prefill_tokens, Some(4000.0));
    let spec = counters.spec.as_ref().unwrap();
    assert_eq!(
        (spec.drafts, spec.draft_tokens, spec.accepted_tokens),
        (100.0, 300.0, 150.0)
    );
    assert_eq!(spec.accepted_at_position, [80.0, 50.0, 20.0]);
    assert_eq!(seen.malformed_lines, 0);
}

#[test]
fn names_printed_twice_are_not_added_up_and_ranks_are() {
    let seen = Observation::from_page(VLLM_0_10).unwrap();
    assert_eq!(seen.ranks, 2);
    assert!((seen.kv_usage.unwrap() - 0.4).abs() < 1e-9);
    assert_eq!(seen.kv_usage_fullest, Some(0.6));
    assert_eq!((seen.running, seen.waiting), (Some(8), Some(1)));
    assert_eq!(seen.cache.capacity_tokens, Some(16 * 3000));
    assert_eq!(seen.counters.prefix_queries, Some(400.0));
    assert_eq!(seen.counters.prefix_hits, Some(100.0));
    assert_eq!(seen.counters.itl.unwrap().count, 10.0);
}

#[test]
fn the_oldest_vllm_is_read() {
    let seen = Observation::from_page(VLLM_0_6).unwrap();
    assert_eq!(seen.kv_usage, Some(0.5));
    assert_eq!(seen.waiting, Some(3), "swapped requests wait, too");
    assert_eq!(seen.prefix_hit_rate, Some(0.75));
    assert_eq!(seen.acceptance_rate, Some(0.6));
    assert_eq!(seen.cache.capacity_tokens, Some(8_000));
    assert_eq!(seen.counters.itl.unwrap().sum, 2.0);
    assert_eq!(seen.sleep, None);
}

#[test]
fn sglang_is_read_and_tensor_parallel_ranks_count_once() {
    let seen = Observation::from_page(SGLANG).unwrap();
    assert_eq!(seen.dialect, Dialect::Sglang);
    assert_eq!(
        (seen.ranks, seen.running, seen.waiting),
        (2, Some(5), Some(1))
    );
    assert!((seen.kv_usage.unwrap() - 0.2).abs() < 1e-9);
    assert_eq!(seen.cache.capacity_tokens, Some(2_000));
    assert_eq!(seen.cache.block_size, Some(64));
    assert_eq!(seen.counters.prefix_queries, Some(100.0));
    assert_eq!(seen.counters.prefix_hits, Some(25.0));
    assert_eq!(seen.acceptance_rate, Some(0.7));
}

#[test]
fn llama_cpp_is_read() {
    let seen = Observation::from_page(LLAMA_CPP).unwrap();
    assert_eq!(seen.dialect, Dialect::LlamaCpp);
    assert_eq!((seen.running, seen.waiting), (Some(2), Some(1)));
    assert_eq!(seen.kv_usage, Some(0.4));
    assert_eq!(seen.counters.prefix_queries, Some(400.0));
    assert_eq!(seen.counters.prefix_hits, Some(100.0));
    assert_eq!(
        seen.counters.itl.unwrap().sum / seen.counters.itl.unwrap().count,
        0.05
    );
    assert_eq!(
        seen.counters.spec.unwrap().accepted_at_position,
        [10.0, 5.0]
    );
}

#[test]
fn a_page_of_no_known_engine_is_no_observation() {
    assert_eq!(Observation::from_page("go_goroutines 7\n"), None);
    assert_eq!(Observation::from_page(""), None);
    assert_eq!(Observation::from_page("<html>not found</html>"), None);
}

#[test]
fn nonsense_values_do_not_spoil_an_observation() {
    let page = "vllm:num_requests_running NaN\n\
                vllm:num_requests_waiting -3\n\
                vllm:kv_cache_usage_perc 7.5\n\
                vllm:spec_decode_num_draft_tokens_total 1\n\
                vllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"4000000000\"} 1\n";
    let seen = Observation::from_page(page).unwrap();
    assert_eq!((seen.running, seen.waiting), (None, None));
    assert_eq!(seen.kv_usage, Some(1.0));
    assert!(seen.counters.spec.unwrap().accepted_at_position.is_empty());
}

/// Not a benchmark: a page of the size vLLM prints must never take long enough to matter, even in an
/// unoptimised build on a busy machine.
#[test]
fn a_page_of_sixty_kilobytes_is_read_in_no_time() {
    let filler =
        "vllm:e2e_request_latency_seconds_bucket{engine=\"0\",le=\"0.3\",model_name=\"m\"} 207.0\n";
    let page = format!("{VLLM_TODAY}{}", filler.repeat(60_000 / filler.len()));
    let best = (0..20)
        .map(|_| {
            let begun = std::time::Instant::now();
            assert!(Observation::from_page(&page).is_some());
            begun.elapsed()
        })
        .min()
        .unwrap();
    println!("{} bytes in {best:?}", page.len());
    assert!(best < Duration::from_millis(20), "{best:?}");
}
