//! What a fleet run promises, and what the default policy is worth on chats.

use std::time::Duration;

use forespeak_simulator::report::Report;
use forespeak_simulator::spec::WorkerSpec;
use forespeak_simulator::workload::{Arrival, Chats, WorkItem, Workload};
use forespeak_simulator::{FleetConfig, simulate};
use routing::Policy;

/// Documents of 720,000 KV tokens: more than twice what one worker holds, a third of what eight do.
fn chats(chats_per_second: f64) -> Workload {
    Chats {
        chats_per_second,
        documents: 60,
        lasting: Duration::from_secs(120),
        ..Chats::default()
    }
    .generate()
}

fn run(policy: Policy, workload: &Workload) -> Report {
    simulate(
        &FleetConfig::new(8, WorkerSpec::a100_8b(), policy),
        workload,
    )
}

#[test]
fn every_request_is_answered_under_every_policy_with_and_without_events() {
    let workload = chats(0.5);
    for policy in Policy::ALL {
        for event_delay in [None, Some(Duration::from_millis(50))] {
            let config = FleetConfig {
                event_delay,
                ..FleetConfig::new(4, WorkerSpec::l40s_8b(), policy)
            };
            let report = simulate(&config, &workload);
            assert_eq!(report.finished, workload.items.len(), "{policy}");
            assert_eq!(report.refused, 0, "{policy}");
        }
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    let workload = chats(0.5);
    let config = FleetConfig::new(4, WorkerSpec::a100_8b(), Policy::Fit);
    assert_eq!(simulate(&config, &workload), simulate(&config, &workload));
    assert_ne!(
        simulate(&config, &workload),
        simulate(&FleetConfig { seed: 2, ..config }, &workload)
    );
}

#[test]
fn a_prompt_no_worker_holds_is_refused_and_its_chat_goes_on() {
    let item = |arrival, prompt_tokens| WorkItem {
        arrival,
        session: 0,
        prompt_tokens,
        output_tokens: 10,
        blocks: Vec::new(),
    };
    let think = Duration::from_secs(1);
    let items = vec![
        item(Arrival::At(think), 1_000_000),
        item(Arrival::After { previous: 0, think }, 100),
    ];
    let workload = Workload {
        name: "too large".into(),
        block_tokens: 16,
        items,
    };
    let report = run(Policy::Fit, &workload);
    assert_eq!((report.refused, report.finished), (1, 1));
}

#[test]
fn what_the_index_predicts_is_what_the_workers_report() {
    let workload = chats(1.5);
    for event_delay in [None, Some(Duration::from_millis(20))] {
        let config = FleetConfig {
            event_delay,
            ..FleetConfig::new(8, WorkerSpec::a100_8b(), Policy::Fit)
        };
        let share = simulate(&config, &workload).predicted_within_a_block;
        assert!(
            share >= 0.95,
            "{share} of the answers within one block, events {event_delay:?}"
        );
    }
}

#[test]
fn fit_evicts_at_least_94_percent_less_than_round_robin() {
    let workload = chats(1.0);
    let (round_robin, fit) = (
        run(Policy::RoundRobin, &workload),
        run(Policy::Fit, &workload),
    );
    assert!(round_robin.evictions > 2_000, "{round_robin:?}");
    assert!(
        fit.evictions * 100 <= round_robin.evictions * 6,
        "{} of {}",
        fit.evictions,
        round_robin.evictions
    );
}

#[test]
fn fit_carries_three_times_the_throughput_at_the_same_p95_ttft() {
    let carried = run(Policy::RoundRobin, &chats(1.0));
    let overrun = run(Policy::RoundRobin, &chats(2.0));
    let fit = run(Policy::Fit, &chats(4.0));
    assert!(
        overrun.ttft.p95 > 2.0 * carried.ttft.p95,
        "round robin has more to give: {overrun:?}"
    );
    assert!(
        fit.ttft.p95 <= carried.ttft.p95,
        "{} s against {} s",
        fit.ttft.p95,
        carried.ttft.p95
    );
    assert!(
        fit.requests_per_second >= 3.0 * carried.requests_per_second,
        "{} against {} requests a second",
        fit.requests_per_second,
        carried.requests_per_second
    );
}
