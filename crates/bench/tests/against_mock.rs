//! The load generator against a mock of vLLM: what it counts is what the mock counts.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking, and clippy does not take helpers for tests"
)]

use clap::Parser;
use forespeak_bench::{Options, Outcome, Outcomes, Summary, run};
use testkit::mock_vllm::{Misdeed, MockConfig, MockVllm};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    options: Options,
}

/// Runs a bench as the command line would.
async fn bench(mock: &MockVllm, words: &str) -> (Outcomes, Summary) {
    let url = mock.url();
    let words = ["bench", "--url", &url].into_iter().chain(words.split(' '));
    let options = Command::parse_from(words).options;
    let outcomes = tokio::task::spawn_blocking(move || run(&options))
        .await
        .unwrap()
        .unwrap();
    let summary = Summary::of(&outcomes.records, outcomes.lasted);
    (outcomes, summary)
}

async fn start() -> MockVllm {
    MockVllm::start(MockConfig::default()).await.unwrap()
}

#[tokio::test]
async fn a_closed_loop_counts_what_the_server_counts() {
    let mock = start().await;
    let words = "--requests 40 --concurrency 4 --prompt-tokens 100 --shared-tokens 64 --groups 2 --output-tokens 10";
    let (_, summary) = bench(&mock, words).await;
    assert_eq!((summary.completed, summary.failed), (40, 0));
    assert_eq!(summary.output_tokens, 400);
    let machine = mock.books().machine;
    assert_eq!(summary.input_tokens, machine.prompt_tokens);
    assert_eq!(summary.cached_tokens, machine.cached_tokens);
    assert!(summary.cached_share > 0.3, "{}", summary.cached_share);
    assert!((summary.tokens_per_chunk - 1.0).abs() < 1e-9);
}

#[tokio::test]
async fn growing_chats_carry_the_servers_own_answers() {
    let mock = start().await;
    let words = "--workload chats --requests 20 --turns 5 --documents 2 --document-tokens 320 --question-tokens 20 --output-tokens 30 --think 0.001";
    let (_, summary) = bench(&mock, words).await;
    assert_eq!((summary.completed, summary.failed), (20, 0));
    // Everything but the first turn's document and what is new is found again.
    assert!(summary.cached_share > 0.6, "{}", summary.cached_share);
}

#[tokio::test]
async fn a_trace_is_replayed_as_token_ids() {
    let mock = start().await;
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.jsonl");
    let line =
        r#"{"timestamp": 0, "input_length": 1100, "output_length": 80, "hash_ids": [0, 1, 2]}"#;
    std::fs::write(&trace, [line; 3].join("\n")).unwrap();
    let words = format!(
        "--workload mooncake --trace {} --scale 8 --token-ids --concurrency 1",
        trace.display()
    );
    let (outcomes, summary) = bench(&mock, &words).await;
    assert_eq!(summary.completed, 3);
    assert_eq!((summary.input_tokens, summary.output_tokens), (3 * 137, 30));
    assert_eq!(summary.cached_tokens, 2 * 128);
    assert!(outcomes.records.iter().all(|record| record.chunks() == 10));
}

#[tokio::test]
async fn every_way_to_fail_has_its_own_name() {
    let mock = start().await;
    mock.script([
        Misdeed::Status(429),
        Misdeed::Status(503),
        Misdeed::Status(400),
        Misdeed::Status(500),
        Misdeed::Reset,
        Misdeed::CutAfter { tokens: 2 },
        Misdeed::ErrorEventAfter { tokens: 2 },
        Misdeed::Hang,
    ]);
    let words = "--requests 9 --concurrency 1 --output-tokens 5 --prompt-tokens 10 --timeout 1";
    let (outcomes, summary) = bench(&mock, words).await;
    let ends: Vec<Outcome> = outcomes
        .records
        .iter()
        .map(|record| record.outcome)
        .collect();
    assert_eq!(
        ends,
        [
            Outcome::TooManyRequests,
            Outcome::Unavailable,
            Outcome::ClientError,
            Outcome::ServerError,
            Outcome::Reset,
            Outcome::Cut,
            Outcome::ErrorEvent,
            Outcome::Timeout,
            Outcome::Ok,
        ]
    );
    assert_eq!((summary.completed, summary.failed), (1, 8));
}

#[tokio::test]
async fn clients_that_leave_are_seen_by_the_server_and_are_no_failures() {
    let mock = start().await;
    let words = "--requests 10 --cancel-share 1 --output-tokens 400 --prompt-tokens 10";
    let (_, summary) = bench(&mock, words).await;
    assert_eq!((summary.completed, summary.failed), (0, 0));
    assert_eq!(summary.outcomes[&Outcome::Cancelled], 10);
}
