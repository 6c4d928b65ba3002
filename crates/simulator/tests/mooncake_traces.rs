//! The default policy on recorded traces, over three kinds of worker and several loads.
//!
//! The traces are not part of the repository. `FORESPEAK_TRACES` names the folder that holds
//! `conversation_trace.jsonl` and `synthetic_trace.jsonl` of Mooncake's FAST'25 release; without it these tests say
//! so and do nothing. Run them optimised: `cargo test --release -p forespeak-simulator --test mooncake_traces`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "helpers of tests"
)]

use std::path::PathBuf;

use forespeak_simulator::report::Report;
use forespeak_simulator::spec::WorkerSpec;
use forespeak_simulator::workload::Workload;
use forespeak_simulator::{FleetConfig, mooncake, simulate};
use routing::Policy;

/// Round robin carries a load if it answers it within 3 % of the time in which it came.
const CARRIED: f64 = 0.97;

/// Chance tells equal scores apart: figures are means over so many seeds.
const SEEDS: u64 = 2;

fn trace(name: &str) -> Option<Workload> {
    let Some(folder) = std::env::var_os("FORESPEAK_TRACES") else {
        println!("skipped: FORESPEAK_TRACES does not name a folder with traces");
        return None;
    };
    let text = std::fs::read_to_string(PathBuf::from(folder).join(name)).unwrap();
    Some(mooncake::workload(name, &mooncake::parse(&text).unwrap()))
}

fn mean(policy: Policy, kind: WorkerSpec, workload: &Workload) -> Report {
    let runs: Vec<Report> = (1..=SEEDS)
        .map(|seed| {
            simulate(
                &FleetConfig {
                    seed,
                    ..FleetConfig::new(8, kind, policy)
                },
                workload,
            )
        })
        .collect();
    Report::mean(&runs)
}

/// Replays a trace at each load; at the highest that round robin carries, `fit` must be better by `at_least`, and at
/// none may it be more than 5 % worse than LMetric.
fn compare(name: &str, kind: WorkerSpec, speeds: &[f64], at_least: f64) {
    let Some(trace) = trace(name) else { return };
    let mut gain = None;
    for speed in speeds {
        let workload = trace.clone().faster(*speed);
        let [round_robin, lmetric, fit] = [Policy::RoundRobin, Policy::Lmetric, Policy::Fit]
            .map(|policy| mean(policy, kind, &workload));
        println!(
            "{name} at {speed}: p95 ttft {:.3} s round robin ({:.1} % carried), {:.3} s lmetric, {:.3} s fit",
            round_robin.ttft.p95,
            round_robin.carried * 100.0,
            lmetric.ttft.p95,
            fit.ttft.p95
        );
        assert!(
            fit.ttft.p95 <= 1.05 * lmetric.ttft.p95,
            "worse than lmetric at {speed}"
        );
        if round_robin.carried >= CARRIED {
            gain = Some(1.0 - fit.ttft.p95 / round_robin.ttft.p95);
        }
    }
    let gain = gain.expect("one load that round robin carries");
    assert!(
        gain >= at_least,
        "{:.0} % lower p95 ttft, {:.0} % wanted",
        gain * 100.0,
        at_least * 100.0
    );
}

#[test]
fn fit_on_the_conversation_trace_with_a100_8b() {
    compare(
        "conversation_trace.jsonl",
        WorkerSpec::a100_8b(),
        &[0.5, 0.6, 0.7, 0.8],
        0.40,
    );
}

#[test]
fn fit_on_the_conversation_trace_with_h100_8b() {
    compare(
        "conversation_trace.jsonl",
        WorkerSpec::h100_8b(),
        &[1.5, 2.0, 2.5],
        0.40,
    );
}

#[test]
fn fit_on_the_conversation_trace_with_h100_70b_tp4() {
    compare(
        "conversation_trace.jsonl",
        WorkerSpec::h100_70b_tp4(),
        &[0.6, 0.8, 1.0],
        0.40,
    );
}

#[test]
fn fit_on_the_conversation_trace_with_l40s_8b() {
    compare(
        "conversation_trace.jsonl",
        WorkerSpec::l40s_8b(),
        &[0.3, 0.4, 0.5],
        0.40,
    );
}

#[test]
fn fit_on_the_synthetic_trace_with_a100_8b() {
    compare(
        "synthetic_trace.jsonl",
        WorkerSpec::a100_8b(),
        &[0.4, 0.5, 0.6],
        0.71,
    );
}

#[test]
fn fit_on_the_synthetic_trace_with_h100_8b() {
    compare(
        "synthetic_trace.jsonl",
        WorkerSpec::h100_8b(),
        &[1.2, 1.5, 1.8, 2.0],
        0.71,
    );
}

#[test]
fn fit_on_the_synthetic_trace_with_h100_70b_tp4() {
    compare(
        "synthetic_trace.jsonl",
        WorkerSpec::h100_70b_tp4(),
        &[0.5, 0.6, 0.7],
        0.71,
    );
}

/// Where the cache holds 170,000 tokens, no placement finds more than a sixth of this trace in it: there is less to
/// win than with the other kinds.
#[test]
fn fit_on_the_synthetic_trace_with_l40s_8b() {
    compare(
        "synthetic_trace.jsonl",
        WorkerSpec::l40s_8b(),
        &[0.4, 0.45, 0.5],
        0.55,
    );
}
