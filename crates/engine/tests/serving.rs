//! The engine as its callers see it: submit, read, leave, drain, and what happens when things go wrong.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking, and clippy does not take helpers for tests"
)]

mod common;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use common::{Answer, Random, greedy, hash_engine, request};
use forespeak_engine::{
    Engine, EngineConfig, ExecuteError, Executor, FinishReason, Format, KvEvent, RefusalKind,
    Request, Sampling, StopMatch, SubmitError, Update,
};
use model::{Batch, Logits};
use testkit::hash_lm::{HashLm, ToyVocabulary};

fn answer(engine: &Engine, request: Request) -> Answer {
    Answer::read(&mut engine.submit(request).unwrap())
}

/// Waits until `condition` holds; a test that waits for ever says what for.
fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::yield_now();
    }
}

#[test]
fn greedy_text_is_the_models_own() {
    let engine = hash_engine(&EngineConfig::default());
    let prompt: Vec<u32> = (0..50).collect();
    let answer = answer(&engine, request(prompt.clone(), greedy(40)));
    assert_eq!(answer.ids(), HashLm::greedy(&prompt, 40));
    assert_eq!(answer.choices[&0].end, Some((FinishReason::Length, None)));
}

#[test]
fn two_hundred_streams_with_blocks_for_twenty_all_finish() {
    let engine = hash_engine(&EngineConfig {
        num_blocks: 20 * 4,
        max_num_seqs: 64,
        max_num_batched_tokens: 256,
        ..EngineConfig::default()
    });
    let mut random = Random(7);
    let mut open: Vec<_> = (0..200)
        .map(|_| {
            let prompt = random.tokens(30);
            let generation = engine.submit(request(prompt.clone(), greedy(34))).unwrap();
            (prompt, generation)
        })
        .collect();
    for (prompt, generation) in &mut open {
        assert_eq!(Answer::read(generation).ids(), HashLm::greedy(prompt, 34));
    }
    assert!(engine.metrics().preemptions() > 0);
    eventually("all blocks coming back", || {
        engine.metrics().kv_cache_usage() == 0.0
    });
}

#[test]
fn a_dropped_generation_gives_its_blocks_back_at_once() {
    let config = EngineConfig {
        num_blocks: 8192,
        max_model_len: 100_000,
        ..EngineConfig::default()
    };
    let engine = hash_engine(&config);
    let mut generation = engine
        .submit(request(vec![1; 1000], greedy(90_000)))
        .unwrap();
    assert!(matches!(
        generation.blocking_recv(),
        Some(Update::Started { .. })
    ));
    generation.blocking_recv();
    assert!(engine.metrics().kv_cache_usage() > 0.0);
    drop(generation);
    let left = Instant::now();
    eventually("the blocks coming back", || {
        engine.metrics().kv_cache_usage() == 0.0
    });
    assert!(left.elapsed() < Duration::from_secs(5));
    assert_eq!(engine.metrics().running(), 0);
}

#[test]
fn a_queued_request_can_leave_before_it_ever_ran() {
    let config = EngineConfig {
        max_num_seqs: 1,
        ..EngineConfig::default()
    };
    let lm = Box::new(HashLm::new(config.num_blocks));
    let (engine, mut stepper) = Engine::manual(config, lm, Arc::new(ToyVocabulary)).unwrap();
    let mut first = engine.submit(request(vec![1], greedy(5))).unwrap();
    let second = engine.submit(request(vec![2], greedy(5))).unwrap();
    assert!(stepper.step());
    assert_eq!(engine.metrics().waiting(), 1);
    drop(second);
    assert!(stepper.step());
    assert_eq!(engine.metrics().waiting(), 0);
    while stepper.step() {}
    assert_eq!(Answer::read(&mut first).ids().len(), 5);
}

#[test]
fn requests_that_can_never_fit_are_refused_with_a_reason() {
    let engine = hash_engine(&EngineConfig {
        max_model_len: 100,
        num_blocks: 4,
        ..EngineConfig::default()
    });
    let refuse = |prompt, sampling| {
        let error = engine.submit(request(prompt, sampling)).unwrap_err();
        assert_eq!(error.kind(), RefusalKind::Invalid);
        error
    };
    assert_eq!(refuse(vec![], greedy(1)), SubmitError::EmptyPrompt);
    assert_eq!(
        refuse(vec![1; 100], greedy(1)),
        SubmitError::PromptTooLong {
            prompt: 100,
            limit: 100
        }
    );
    assert_eq!(
        refuse(vec![1; 64], greedy(1)),
        SubmitError::PromptExceedsCache {
            prompt: 64,
            capacity: 64
        }
    );
    assert_eq!(
        refuse(vec![1, 64], greedy(1)),
        SubmitError::UnknownToken { id: 64, vocab: 64 }
    );
    let schema = Format::JsonSchema(serde_json::json!({"type": "nonsense"}));
    assert!(matches!(
        refuse(
            vec![1],
            Sampling {
                format: schema,
                ..greedy(1)
            }
        ),
        SubmitError::Format(_)
    ));
    let longest = answer(&engine, request(vec![1; 63], greedy(50)));
    assert_eq!(longest.ids().len(), 1, "capped by the cache");
}

#[test]
fn a_full_queue_refuses_and_takes_again_when_there_is_room() {
    let config = EngineConfig {
        max_num_seqs: 1,
        max_queued: 2,
        ..EngineConfig::default()
    };
    let lm = Box::new(HashLm::new(config.num_blocks));
    let (engine, mut stepper) = Engine::manual(config, lm, Arc::new(ToyVocabulary)).unwrap();
    let submit = || engine.submit(request(vec![1], greedy(5)));
    let _first = submit().unwrap();
    let _second = submit().unwrap();
    let refusal = submit().unwrap_err();
    assert_eq!(refusal, SubmitError::QueueFull { limit: 2 });
    assert_eq!(refusal.kind(), RefusalKind::Busy);
    assert!(stepper.step());
    let third = submit().unwrap();
    assert!(submit().is_err());
    drop(third);
    assert!(stepper.step());
    assert!(submit().is_ok());
}

#[test]
fn a_draining_engine_finishes_what_it_has_and_takes_no_more() {
    let engine = hash_engine(&EngineConfig::default());
    let mut open: Vec<_> = (0..8)
        .map(|i| engine.submit(request(vec![i], greedy(200))).unwrap())
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(engine.drain());
    let refused = engine.submit(request(vec![1], greedy(1))).unwrap_err();
    assert_eq!(refused.kind(), RefusalKind::Unavailable);
    for generation in &mut open {
        assert_eq!(Answer::read(generation).ids().len(), 200);
    }
}

#[test]
fn stopping_fails_what_still_runs() {
    let engine = hash_engine(&EngineConfig::default());
    let mut generation = engine.submit(request(vec![1], greedy(3000))).unwrap();
    drop(engine);
    let answer = Answer::read(&mut generation);
    assert!(answer.failed.is_some());
}

#[test]
fn the_same_seed_gives_the_same_text_whatever_runs_beside_it() {
    let sampling = Sampling {
        seed: Some(11),
        n: 3,
        max_tokens: Some(30),
        ignore_eos: true,
        ..Sampling::default()
    };
    let prompt: Vec<u32> = (0..33).collect();
    let engine = hash_engine(&EngineConfig::default());
    let alone = answer(&engine, request(prompt.clone(), sampling.clone()));
    assert_ne!(alone.choices[&0].ids(), alone.choices[&1].ids());
    let _noise: Vec<_> = (0..20)
        .map(|i| engine.submit(request(vec![i; 40], greedy(500))).unwrap())
        .collect();
    let crowded = answer(&engine, request(prompt.clone(), sampling.clone()));
    assert_eq!(alone.choices, crowded.choices);
    let other = Sampling {
        seed: Some(12),
        ..sampling.clone()
    };
    assert_ne!(
        alone.choices,
        answer(&engine, request(prompt.clone(), other)).choices
    );
    let unseeded = Sampling {
        seed: None,
        ..sampling
    };
    assert_ne!(
        answer(&engine, request(prompt.clone(), unseeded.clone())).choices,
        answer(&engine, request(prompt, unseeded)).choices
    );
}

#[test]
fn a_stop_token_ends_the_answer_and_is_named() {
    let prompt = vec![3, 1, 4];
    let ids = HashLm::greedy(&prompt, 40);
    let last = ids[12];
    let first = ids.iter().position(|&id| id == last).unwrap();
    let engine = hash_engine(&EngineConfig::default());
    let sampling = Sampling {
        stop_token_ids: vec![last],
        ..greedy(40)
    };
    let answer = answer(&engine, request(prompt, sampling));
    assert_eq!(answer.ids(), ids[..=first]);
    assert_eq!(
        answer.choices[&0].end,
        Some((FinishReason::Stop, Some(StopMatch::Token(last))))
    );
}

#[test]
fn prompts_are_scored_on_request() {
    let engine = hash_engine(&EngineConfig {
        max_num_batched_tokens: 64,
        ..EngineConfig::default()
    });
    let prompt: Vec<u32> = (0..60).chain(0..60).chain(0..60).collect();
    let sampling = Sampling {
        prompt_logprobs: Some(2),
        ..greedy(0)
    };
    let scored = answer(&engine, request(prompt.clone(), sampling));
    assert_eq!(
        scored.prompt.iter().map(|t| t.id).collect::<Vec<_>>(),
        prompt
    );
    assert_eq!(scored.prompt[0].logprob, None);
    for token in &scored.prompt[1..] {
        let logprob = token.logprob.as_ref().unwrap();
        assert!(logprob.logprob <= logprob.top[0].1);
        assert_eq!(logprob.top.len(), 2);
    }
    assert_eq!(scored.choices[&0].end, Some((FinishReason::Length, None)));
    let next = answer(&engine, request(prompt[..100].to_vec(), greedy(1)));
    let position = scored.prompt[100].logprob.as_ref().unwrap();
    assert_eq!(position.top[0].0, next.ids()[0]);
}

#[test]
fn prefixes_are_shared_within_a_salt_only() {
    let engine = hash_engine(&EngineConfig::default());
    let prompt: Vec<u32> = (0..60).collect();
    let with_salt = |salt: Option<&str>| {
        let request = Request {
            cache_salt: salt.map(Into::into),
            ..request(prompt.clone(), greedy(1))
        };
        answer(&engine, request).cached_tokens
    };
    assert_eq!(with_salt(None), 0);
    assert_eq!(with_salt(None), 48);
    assert_eq!(with_salt(Some("a")), 0);
    assert_eq!(with_salt(Some("b")), 0);
    assert_eq!(with_salt(Some("a")), 48);
    engine.reset_prefix_cache();
    assert_eq!(with_salt(None), 0);
}

#[test]
fn kv_events_tell_what_can_be_reused() {
    let engine = hash_engine(&EngineConfig {
        num_blocks: 8,
        kv_event_buffer: 1000,
        ..EngineConfig::default()
    });
    let mut events = engine.kv_events().unwrap();
    assert!(engine.kv_events().is_none());
    for i in 0..10 {
        answer(&engine, request(vec![i; 40], greedy(20)));
    }
    engine.reset_prefix_cache();
    drop(engine);
    let mut stored = HashSet::new();
    let mut evictions = 0;
    let mut cleared = false;
    while let Some(batch) = events.blocking_recv() {
        for event in batch.events {
            match event {
                KvEvent::Stored { hashes, parent, .. } => {
                    assert!(parent.is_none_or(|p| stored.contains(&p)));
                    stored.extend(hashes);
                }
                KvEvent::Removed { hashes } => {
                    evictions += hashes.len();
                    assert!(hashes.iter().all(|hash| stored.remove(hash)));
                }
                KvEvent::Cleared => {
                    cleared = true;
                    stored.clear();
                }
                KvEvent::Kept { .. } | KvEvent::Lost { .. } => unreachable!("there is no store"),
            }
        }
    }
    assert!(evictions > 0 && cleared);
}

#[test]
fn json_of_a_schema_is_json_of_that_schema() {
    let engine = hash_engine(&EngineConfig::default());
    let schema = serde_json::json!({
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"enum": [1, 2, 3]}, "maxItems": 3, "minItems": 1},
            "b": {"enum": ["the", "abc"]},
        },
        "required": ["a", "b"],
        "additionalProperties": false,
    });
    for seed in 0..8 {
        let sampling = Sampling {
            format: Format::JsonSchema(schema.clone()),
            seed: Some(seed),
            max_tokens: Some(400),
            // Blanks are allowed almost everywhere, and this model likes them as much as anything.
            logit_bias: [(26, -10.0), (33, -10.0)].into(),
            n: 2,
            ..Sampling::default()
        };
        let answer = answer(&engine, request(vec![seed as u32], sampling));
        assert_eq!(answer.choices.len(), 2);
        for choice in answer.choices.values() {
            assert_eq!(choice.end, Some((FinishReason::Stop, None)), "{choice:?}");
            let value: serde_json::Value = serde_json::from_str(&choice.text).unwrap();
            assert!(value["a"].as_array().is_some_and(|a| !a.is_empty()));
            assert!(["the", "abc"].contains(&value["b"].as_str().unwrap()));
        }
    }
}

/// Fails on command.
struct Faulty {
    lm: HashLm,
    fault: Arc<AtomicU8>,
}

const WORKS: u8 = 0;
const FAILS: u8 = 1;
const PANICS: u8 = 2;
const GIVES_NO_NUMBERS: u8 = 3;

impl Executor for Faulty {
    fn execute(&mut self, batch: &Batch, logits: &mut Logits) -> Result<(), ExecuteError> {
        match self.fault.load(Ordering::Relaxed) {
            FAILS => Err(ExecuteError("told to".to_owned())),
            PANICS => panic!("told to"),
            GIVES_NO_NUMBERS => {
                logits
                    .resize(batch.outputs.len(), HashLm::VOCAB)
                    .fill(f32::NAN);
                Ok(())
            }
            _ => self.lm.execute(batch, logits),
        }
    }

    fn vocab_size(&self) -> usize {
        self.lm.vocab_size()
    }
}

#[test]
fn a_fault_costs_the_requests_in_the_step_and_nothing_else() {
    let config = EngineConfig {
        max_num_seqs: 1,
        ..EngineConfig::default()
    };
    let fault = Arc::new(AtomicU8::new(WORKS));
    let faulty = Box::new(Faulty {
        lm: HashLm::new(config.num_blocks),
        fault: Arc::clone(&fault),
    });
    let (engine, mut stepper) = Engine::manual(config, faulty, Arc::new(ToyVocabulary)).unwrap();
    for kind in [FAILS, PANICS, GIVES_NO_NUMBERS] {
        let mut hit = engine.submit(request(vec![1; 20], greedy(10))).unwrap();
        let mut waiting = engine.submit(request(vec![2; 20], greedy(10))).unwrap();
        stepper.step();
        fault.store(kind, Ordering::Relaxed);
        stepper.step();
        fault.store(WORKS, Ordering::Relaxed);
        while stepper.step() {}
        let failed = Answer::read(&mut hit);
        assert!(failed.failed.is_some(), "fault {kind}");
        assert_eq!(
            Answer::read(&mut waiting).ids(),
            HashLm::greedy(&[2; 20], 10)
        );
        assert_eq!(engine.metrics().kv_cache_usage(), 0.0);
    }
}

#[test]
fn a_slow_reader_gets_deltas_together() {
    let config = EngineConfig::default();
    let lm = Box::new(HashLm::new(config.num_blocks));
    let (engine, mut stepper) = Engine::manual(config, lm, Arc::new(ToyVocabulary)).unwrap();
    let mut generation = engine.submit(request(vec![1], greedy(50))).unwrap();
    while stepper.step() {}
    let mut updates = Vec::new();
    while let Some(update) = generation.blocking_recv() {
        updates.push(update);
    }
    assert_eq!(updates.len(), 3, "started, all tokens at once, finished");
}
