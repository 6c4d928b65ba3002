//! The worker on its own.

use proptest::prelude::*;

use super::*;

fn spec(kv_tokens: u64) -> WorkerSpec {
    WorkerSpec {
        kv_tokens,
        ..WorkerSpec::a100_8b()
    }
}

fn job(id: usize, prompt_tokens: u64, output_tokens: u64, content: u32) -> Job {
    let blocks = ((prompt_tokens + output_tokens) / 16) as u32;
    Job {
        id,
        prompt_tokens,
        output_tokens,
        blocks: (0..blocks).map(|at| content * 10_000 + at).collect(),
    }
}

/// Runs until idle; every event with the time at which it came.
fn run(worker: &mut SimWorker) -> Vec<(Duration, WorkerEvent)> {
    let mut now = Duration::ZERO;
    let mut events = Vec::new();
    while let Some(step) = worker.step() {
        now += step.takes;
        events.extend(step.events.into_iter().map(|event| (now, event)));
    }
    events
}

fn first_token(events: &[(Duration, WorkerEvent)], of: usize) -> Duration {
    let token = |event: &WorkerEvent| *event == WorkerEvent::Token { id: of, nth: 1 };
    events.iter().find(|(_, event)| token(event)).unwrap().0
}

#[test]
fn a_lone_prompt_takes_its_tokens_over_the_rate() {
    let mut worker = SimWorker::new(WorkerSpec {
        attention_scale_tokens: f64::INFINITY,
        ..spec(300_000)
    });
    worker.submit(job(0, 4_000, 1, 0));
    let ttft = first_token(&run(&mut worker), 0).as_secs_f64();
    assert!((ttft - 0.408).abs() < 1e-6, "{ttft}");
}

#[test]
fn a_prompt_seen_before_costs_only_what_is_new() {
    let mut worker = SimWorker::new(spec(300_000));
    worker.submit(job(0, 8_000, 10, 0));
    let cold = first_token(&run(&mut worker), 0);
    worker.submit(job(1, 8_000, 10, 0));
    let events = run(&mut worker);
    assert!(first_token(&events, 1) * 10 < cold);
    // All but the last block: something must be computed for a token to come out.
    let finished = WorkerEvent::Finished {
        id: 1,
        cached_tokens: 7_984,
    };
    assert!(
        events.iter().any(|(_, event)| *event == finished),
        "{:?}",
        events.last()
    );
}

#[test]
fn more_requests_at_once_lengthen_the_time_between_tokens() {
    let gap = |requests: usize| {
        let mut worker = SimWorker::new(spec(300_000));
        (0..requests).for_each(|id| worker.submit(job(id, 100, 50, id as u32)));
        run(&mut worker);
        let counters = worker.counters();
        counters
            .inter_token_time
            .div_f64(counters.inter_token_count as f64)
    };
    assert!(gap(64) > gap(1) + Duration::from_millis(3));
}

#[test]
fn a_long_prompt_is_computed_in_chunks_beside_running_answers() {
    let mut worker = SimWorker::new(spec(300_000));
    worker.submit(job(0, 100, 200, 0));
    worker.step();
    worker.submit(job(1, 40_000, 1, 1));
    let events = run(&mut worker);
    let long = first_token(&events, 1);
    let between = events
        .iter()
        .filter(|(at, event)| *at < long && matches!(event, WorkerEvent::Token { id: 0, .. }))
        .count();
    assert_eq!(between, 4, "one token per chunk of 8,192");
}

#[test]
fn when_blocks_run_out_the_youngest_starts_over_and_all_still_finish() {
    let mut worker = SimWorker::new(spec(2_048));
    (0..4).for_each(|id| worker.submit(job(id, 400, 600, id as u32)));
    let events = run(&mut worker);
    let finished = events
        .iter()
        .filter(|(_, event)| matches!(event, WorkerEvent::Finished { .. }))
        .count();
    assert_eq!(finished, 4);
    assert!(worker.counters().preemptions > 0);
    assert_eq!(worker.gauges(), Gauges::default());
}

#[test]
fn a_request_larger_than_the_cache_is_refused_and_blocks_nobody() {
    let mut worker = SimWorker::new(spec(2_048));
    worker.submit(job(0, 5_000, 10, 0));
    worker.submit(job(1, 500, 10, 1));
    let events = run(&mut worker);
    assert!(
        events
            .iter()
            .any(|(_, event)| *event == WorkerEvent::Refused { id: 0 })
    );
    assert!(
        events
            .iter()
            .any(|(_, event)| matches!(event, WorkerEvent::Finished { id: 1, .. }))
    );
}

#[test]
fn an_abort_gives_the_blocks_back_at_once() {
    let mut worker = SimWorker::new(spec(300_000));
    worker.submit(job(0, 5_000, 1_000, 0));
    worker.submit(job(1, 5_000, 1_000, 1));
    worker.step();
    worker.abort(0);
    worker.abort(1);
    assert!(worker.is_idle());
    assert_eq!(worker.gauges(), Gauges::default());
}

proptest! {
    #[test]
    fn every_request_gets_all_its_tokens_and_the_cache_drains(
        jobs in proptest::collection::vec((1u64..1_500, 1u64..300, 0u32..6), 1..25),
        kv_tokens in 2_048u64..6_000,
        step_tokens in 16u32..2_000,
    ) {
        let mut worker = SimWorker::new(WorkerSpec { step_tokens, ..spec(kv_tokens) });
        for (id, (prompt, output, content)) in jobs.iter().enumerate() {
            worker.submit(job(id, *prompt, *output, *content));
        }
        let events = run(&mut worker);
        for (id, (_, output, _)) in jobs.iter().enumerate() {
            let tokens: Vec<u64> = events
                .iter()
                .filter_map(|(_, event)| match event {
                    WorkerEvent::Token { id: of, nth } if *of == id => Some(*nth),
                    _ => None,
                })
                .collect();
            prop_assert_eq!(tokens, (1..=*output).collect::<Vec<_>>());
        }
        prop_assert_eq!(worker.gauges(), Gauges::default());
        let counters = worker.counters();
        prop_assert!(counters.cached_tokens < counters.prompt_tokens);
    }
}
