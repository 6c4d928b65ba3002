//! What every policy promises, whatever it is told.

use std::time::Duration;

use forespeak_routing::decision::MAX_SHOWN;
use forespeak_routing::{
    Draw, LedgerView, Matches, Policy, Priority, RequestView, WorkerId, WorkerView,
};
use proptest::prelude::*;

fn worker(id: u16) -> impl Strategy<Value = WorkerView> {
    (
        prop_oneof![Just(0.0), 0.01..=1.0],
        prop_oneof![Just(0), 1u64..1_000_000],
        prop_oneof![Just(f64::NAN), -1.0..2.0],
        (
            any::<u32>(),
            any::<u32>(),
            any::<u32>(),
            any::<u32>(),
            any::<u32>(),
        ),
        (0u64..1 << 40, 0u64..1 << 40),
        prop_oneof![Just(0.0), 1.0..1e6],
        (0u64..100_000, any::<u32>(), -1.0..2.0),
    )
        .prop_map(
            move |(weight, capacity, kv_usage, counts, tokens, rate, (itl, step_tokens, trust))| {
                WorkerView {
                    weight,
                    kv_usage,
                    running: counts.0,
                    waiting: counts.1,
                    ledger: LedgerView {
                        in_flight: counts.2,
                        sent_since_scrape: counts.3,
                        kv_tokens_since_scrape: tokens.0,
                        prefill_backlog_tokens: tokens.1,
                        in_last_scrape: counts.4,
                    },
                    prefill_tokens_per_second: rate,
                    inter_token: Duration::from_micros(itl),
                    step_tokens,
                    hit_trust: trust,
                    ..WorkerView::idle(WorkerId(id), capacity)
                }
            },
        )
}

fn fleet() -> impl Strategy<Value = Vec<WorkerView>> {
    (0u16..40).prop_flat_map(|count| (0..count).map(worker).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn a_choice_is_made_among_the_open_whenever_there_is_one(
        workers in fleet(),
        prompt_tokens in 0u64..1_000_000,
        matched in proptest::collection::vec(0u32..100_000, 0..40),
        (turn, random, session) in any::<(u64, u64, u64)>(),
    ) {
        let matches = Matches::from_pairs((0..).map(WorkerId).zip(matched));
        let request = RequestView {
            prompt_tokens,
            expected_output_tokens: 100,
            matches: &matches,
            block_tokens: 16,
            priority: Priority::Normal,
            session,
        };
        let open: Vec<_> = workers.iter().filter(|w| w.weight > 0.0).map(|w| w.id).collect();
        for policy in Policy::ALL {
            let draw = Draw { turn, random };
            let decision = policy.decide(&request, &workers, draw);
            prop_assert_eq!(decision.is_some(), !open.is_empty(), "{}", policy);
            if let Some(decision) = decision {
                prop_assert!(open.contains(&decision.chosen));
                prop_assert_eq!(decision.candidates[0].worker, decision.chosen);
                prop_assert_eq!(decision.candidates.len() + decision.not_shown, workers.len());
                prop_assert!(decision.candidates.len() <= MAX_SHOWN);
                let json = serde_json::to_value(&decision).unwrap();
                prop_assert!(json["reason"].is_string());
                prop_assert_eq!(policy.decide(&request, &workers, draw), Some(decision), "pure");
            }
        }
    }
}

#[test]
fn a_decision_reads_the_same_in_json_and_in_a_sentence() {
    let workers: Vec<_> = (0..2)
        .map(|id| WorkerView::idle(WorkerId(id), 300_000))
        .collect();
    let matches = Matches::from_pairs([(WorkerId(1), 50)]);
    let request = RequestView {
        prompt_tokens: 1_000,
        expected_output_tokens: 10,
        matches: &matches,
        block_tokens: 16,
        priority: Priority::Normal,
        session: 1,
    };
    let decision = Policy::Fit
        .decide(&request, &workers, Draw::default())
        .unwrap();
    let json = serde_json::to_value(&decision).unwrap();
    assert_eq!(json["policy"], "fit");
    assert_eq!(json["chosen"], 1);
    assert_eq!(
        json["reason"],
        "it holds 80 % of the prompt and should answer within 0.04 s"
    );
    assert_eq!(json["candidates"][0]["terms"]["cached_tokens"], 800.0);
    assert_eq!(
        decision.to_string(),
        format!("fit chose worker 1: {}", json["reason"].as_str().unwrap())
    );
}

#[test]
fn slow_start_gives_a_newcomer_its_share_and_no_more() {
    let mut workers: Vec<_> = (0..2)
        .map(|id| WorkerView::idle(WorkerId(id), 300_000))
        .collect();
    workers[1].weight = 0.25;
    let matches = Matches::default();
    let request = RequestView {
        prompt_tokens: 1_000,
        expected_output_tokens: 10,
        matches: &matches,
        block_tokens: 16,
        priority: Priority::Normal,
        session: 1,
    };
    for _ in 0..100 {
        let decision = Policy::LeastLoaded
            .decide(&request, &workers, Draw::default())
            .unwrap();
        workers[usize::from(decision.chosen.0)].running += 1;
    }
    assert!(
        (18..=22).contains(&workers[1].running),
        "{} of 100",
        workers[1].running
    );
}
