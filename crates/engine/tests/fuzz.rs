//! Random traffic over the hash-LM: whatever arrives, whenever, with however few blocks, and however it
//! is speculated, every answer must be the one the request gets when it is alone and nothing is guessed.
//!
//! A failing case prints its seed; `FUZZ_SEED=<seed> cargo test -p forespeak-engine --test fuzz` makes the same requests
//! again, with the same events before the same steps. While depths are fixed the steps are the same, too. `goodput` and
//! `threshold` decide by how long steps took: under them steps guess otherwise from run to run, and a case may need
//! several tries to fail again. Answers must be equal whatever the steps were.
//!
//! `FUZZ_CASES` sets how many cases are tried: ten thousand before a release, with
//! `FUZZ_CASES=10000 cargo test --release -p forespeak-engine --test fuzz`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests fail by panicking, and print the seed that repeats them"
)]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use common::{Answer, Random, alone, any_request};
use forespeak_engine::{
    Drafters, Engine, EngineConfig, Executor, Executors, Generation, LawSpec, Request,
    SpeculationConfig,
};
use testkit::hash_lm::{HashLm, ToyVocabulary};

const CASES: u64 = 1500;
const FIRST_SEED: u64 = 1;

#[test]
fn every_answer_is_that_of_the_request_alone() {
    if let Ok(seed) = std::env::var("FUZZ_SEED") {
        let seed = seed.parse().unwrap();
        println!("{:?}", case(seed));
        return;
    }
    let cases = std::env::var("FUZZ_CASES").map_or(CASES, |n| n.parse().unwrap());
    let mut total = Tally::default();
    for seed in FIRST_SEED..FIRST_SEED + cases {
        match catch_unwind(AssertUnwindSafe(|| case(seed))) {
            Ok(tally) => total.add(&tally),
            Err(panic) => {
                println!("replay with FUZZ_SEED={seed}");
                resume_unwind(panic);
            }
        }
    }
    println!("{total:?}");
    // A fuzzer that stopped reaching the interesting states would pass for ever.
    assert!(total.finished > cases);
    assert!(total.preempted > cases / 4, "{total:?}");
    assert!(total.cached > cases / 4, "{total:?}");
    assert!(total.cancelled > cases / 4, "{total:?}");
    assert!(total.accepted > cases * 8, "{total:?}");
    assert!(total.drafted > total.accepted + cases * 8, "{total:?}");
}

#[derive(Debug, Default)]
struct Tally {
    finished: u64,
    cancelled: u64,
    preempted: u64,
    cached: u64,
    drafted: u64,
    accepted: u64,
    steps: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.finished += other.finished;
        self.cancelled += other.cancelled;
        self.preempted += other.preempted;
        self.cached += other.cached;
        self.drafted += other.drafted;
        self.accepted += other.accepted;
        self.steps += other.steps;
    }
}

fn config(random: &mut Random) -> EngineConfig {
    let seqs = random.range(1, 9);
    EngineConfig {
        num_blocks: random.range(2, 20),
        max_model_len: random.range(20, 200),
        max_num_seqs: seqs,
        max_num_batched_tokens: seqs.max(random.range(1, 64)),
        enable_prefix_caching: !random.one_in(8),
        speculation: any_speculation(random),
        ..EngineConfig::default()
    }
}

fn any_speculation(random: &mut Random) -> SpeculationConfig {
    let laws = [
        "fixed:1",
        "fixed:3",
        "fixed:8",
        "fixed:16",
        "goodput",
        "threshold:0.1",
    ];
    let drafters = [
        Drafters::Off,
        Drafters::Auto,
        Drafters::Model,
        Drafters::Ngram,
    ];
    SpeculationConfig {
        drafters: random.pick(&drafters),
        law: random.pick(&laws).parse::<LawSpec>().unwrap(),
    }
}

/// The hash-LM, with or without a drafter that is right now and then.
fn executors(random: &mut Random, blocks: usize) -> Executors {
    let right_percent = random.pick(&[None, Some(0), Some(60), Some(90), Some(100)]);
    Executors {
        target: Box::new(HashLm::new(blocks)),
        draft: right_percent
            .map(|percent| -> Box<dyn Executor> { Box::new(HashLm::drafter(blocks, percent)) }),
    }
}

fn case(seed: u64) -> Tally {
    let random = &mut Random(seed);
    let config = config(random);
    let texts: Vec<Vec<u32>> = (0..2).map(|_| random.tokens(80)).collect();
    let executors = executors(random, config.num_blocks);
    let (engine, mut stepper) =
        Engine::manual(config.clone(), executors, Arc::new(ToyVocabulary)).unwrap();
    let mut tally = Tally::default();

    let arrivals = random.range(1, 14);
    let rush = random.one_in(3);
    let mut pending: Vec<Request> = (0..arrivals)
        .map(|_| any_request(random, &texts, config.longest_sequence()))
        .collect();
    // Who asks the same again gets the same again: lookups find it.
    for _ in 0..random.range(0, 4) {
        let again = random.pick(&pending);
        pending.push(again);
    }
    let work: usize = pending
        .iter()
        .map(|r| r.sampling.n * (r.prompt.len() + r.sampling.max_tokens.unwrap_or(200) + 1))
        .sum();
    let patience = 100 + work as u64 * 20;
    let mut open: Vec<(Request, Generation)> = Vec::new();
    loop {
        while !pending.is_empty() && (rush || random.one_in(3)) {
            let request = pending.pop().unwrap();
            let generation = engine.submit(request.clone()).unwrap();
            open.push((request, generation));
        }
        if !open.is_empty() && random.one_in(40) {
            open.swap_remove(random.range(0, open.len()));
            tally.cancelled += 1;
        }
        if random.one_in(100) {
            engine.reset_prefix_cache();
        }
        if random.one_in(60) {
            engine.set_speculation(any_speculation(random));
        }
        if !stepper.step() && pending.is_empty() {
            break;
        }
        tally.steps += 1;
        assert!(tally.steps < patience, "no end after {patience} steps");
    }

    for (request, mut generation) in open {
        let answer = Answer::read(&mut generation);
        let expected = alone(&config, &request);
        assert_eq!(answer.essence(), expected.essence(), "{request:?}");
        assert_eq!(answer.failed, None);
        assert_eq!(answer.choices.len(), request.sampling.n);
        tally.finished += 1;
        tally.cached += u64::from(answer.cached_tokens > 0);
    }
    tally.preempted = engine.metrics().preemptions();
    tally.drafted = engine.metrics().draft_tokens();
    tally.accepted = engine.metrics().accepted_tokens();
    assert_eq!(engine.metrics().kv_cache_usage(), 0.0, "blocks leaked");
    assert_eq!(engine.metrics().running(), 0);
    assert_eq!(engine.metrics().waiting(), 0);
    tally
}
