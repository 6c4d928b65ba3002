//! Guessing ahead with models whose guesses are known.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Answer, Random, greedy, request};
use forespeak_engine::{
    Drafters, Engine, EngineConfig, ExecuteError, Executor, Executors, LawSpec, Request, Sampling,
    SpeculationConfig, SubmitError,
};
use model::{Batch, Logits};
use testkit::hash_lm::{HashLm, ToyVocabulary};

const DEPTH: &str = "forespeak:speculation_depth";
const SPEEDUP: &str = "forespeak:speculation_expected_speedup";

fn speculating(drafters: Drafters, law: LawSpec) -> EngineConfig {
    EngineConfig {
        num_blocks: 64,
        max_num_seqs: 8,
        max_num_batched_tokens: 64,
        max_model_len: 300,
        speculation: SpeculationConfig { drafters, law },
        ..EngineConfig::default()
    }
}

fn pair(blocks: usize, right_percent: u64) -> Executors {
    Executors {
        target: Box::new(HashLm::new(blocks)),
        draft: Some(Box::new(HashLm::drafter(blocks, right_percent))),
    }
}

/// Keys and values of a drafter that is never wrong are never wrong: a missing, stale or misplaced one
/// would make it guess something else.
#[test]
fn a_drafter_that_thinks_like_the_target_is_always_right() {
    let mut drafted = 0;
    for seed in 0..300 {
        let random = &mut Random(seed);
        let config = EngineConfig {
            num_blocks: random.range(14, 40),
            max_num_seqs: random.range(1, 6),
            max_num_batched_tokens: random.range(6, 60),
            max_model_len: 200,
            ..speculating(Drafters::Model, LawSpec::Fixed(random.range(1, 12)))
        };
        let text = random.tokens(90);
        let requests: Vec<Request> = (0..random.range(1, 10))
            .map(|_| {
                let mut prompt = text[..random.range(0, 80)].to_vec();
                let own = random.range(1, 20);
                prompt.extend(random.tokens(own));
                let sampling = Sampling {
                    n: random.pick(&[1, 1, 2]),
                    temperature: random.pick(&[0.0, 0.9]),
                    top_k: random.pick(&[0, 5]),
                    seed: Some(random.next()),
                    ..greedy(random.range(1, 60))
                };
                request(prompt, sampling)
            })
            .collect();
        let executors = pair(config.num_blocks, 100);
        let (engine, mut stepper) =
            Engine::manual(config, executors, Arc::new(ToyVocabulary)).unwrap();
        let mut open = Vec::new();
        for request in requests {
            open.push(engine.submit(request).unwrap());
            for _ in 0..random.range(0, 6) {
                stepper.step();
            }
        }
        while stepper.step() {}
        let metrics = engine.metrics();
        let accepted = metrics.accepted_tokens();
        assert_eq!(accepted, metrics.draft_tokens(), "seed {seed}");
        drafted += metrics.draft_tokens();
    }
    assert!(drafted > 10_000, "{drafted}");
}

#[test]
fn guesses_make_fewer_steps_of_the_same_answer() {
    let answer = |drafters, asks: &[Request]| {
        let config = speculating(drafters, LawSpec::Fixed(7));
        let executors = pair(config.num_blocks, 100);
        let (engine, mut stepper) =
            Engine::manual(config, executors, Arc::new(ToyVocabulary)).unwrap();
        let (mut steps, mut answers) = (0, Vec::new());
        for ask in asks {
            let mut generation = engine.submit(ask.clone()).unwrap();
            steps = 0;
            while stepper.step() {
                steps += 1;
            }
            answers.push(Answer::read(&mut generation).ids());
        }
        (steps, answers)
    };
    let ask = request(vec![1, 2, 3], greedy(80));
    let expected = HashLm::greedy(&[1, 2, 3], 80);
    let (steps, answers) = answer(Drafters::Off, std::slice::from_ref(&ask));
    assert_eq!((steps, answers), (80, vec![expected.clone()]));
    let (steps, answers) = answer(Drafters::Model, std::slice::from_ref(&ask));
    assert_eq!((steps, answers), (11, vec![expected.clone()]));
    // The second time it is looked up, once three tokens agree.
    let (steps, answers) = answer(Drafters::Ngram, &[ask.clone(), ask]);
    assert!(steps < 16, "{steps}");
    assert_eq!(answers, vec![expected.clone(), expected]);
}

#[test]
fn a_request_can_do_without() {
    let config = speculating(Drafters::Auto, LawSpec::Fixed(5));
    let executors = pair(config.num_blocks, 100);
    let (engine, mut stepper) = Engine::manual(config, executors, Arc::new(ToyVocabulary)).unwrap();
    let sampling = Sampling {
        speculative_depth: Some(0),
        ..greedy(30)
    };
    let mut generation = engine.submit(request(vec![4, 5], sampling)).unwrap();
    while stepper.step() {}
    assert_eq!(
        Answer::read(&mut generation).ids(),
        HashLm::greedy(&[4, 5], 30)
    );
    assert_eq!(engine.metrics().draft_tokens(), 0);
}

#[test]
fn a_request_chooses_who_drafts_for_it_among_those_who_may() {
    let config = speculating(Drafters::Auto, LawSpec::Fixed(5));
    let executors = pair(config.num_blocks, 100);
    let (engine, mut stepper) = Engine::manual(config, executors, Arc::new(ToyVocabulary)).unwrap();
    let mut drafted_for = |drafters| {
        let sampling = Sampling {
            speculative_drafters: drafters,
            ..greedy(30)
        };
        let before = engine.metrics().draft_tokens();
        let mut generation = engine.submit(request(vec![4, 5], sampling)).unwrap();
        while stepper.step() {}
        let answer = Answer::read(&mut generation);
        assert_eq!(answer.ids(), HashLm::greedy(&[4, 5], 30));
        engine.metrics().draft_tokens() - before
    };
    assert_eq!(drafted_for(Drafters::Off), 0);
    assert!(drafted_for(Drafters::Model) >= 24, "right all the time");
    assert!(drafted_for(Drafters::Ngram) > 0, "said before");
    engine.set_speculation(SpeculationConfig {
        drafters: Drafters::Model,
        law: LawSpec::Fixed(5),
    });
    assert_eq!(drafted_for(Drafters::Ngram), 0, "an operator has said no");
}

#[test]
fn a_draft_model_that_is_not_there_cannot_be_asked_for() {
    let config = speculating(Drafters::Auto, LawSpec::Fixed(5));
    let lm = Box::new(HashLm::new(config.num_blocks));
    let (engine, _stepper) = Engine::manual(config, lm, Arc::new(ToyVocabulary)).unwrap();
    let sampling = Sampling {
        speculative_drafters: Drafters::Model,
        ..greedy(3)
    };
    let refused = engine.submit(request(vec![4, 5], sampling));
    assert_eq!(refused.err(), Some(SubmitError::NoDraftModel));
}

#[test]
fn what_a_tenant_was_told_is_looked_up_for_nobody_else() {
    let config = EngineConfig {
        enable_prefix_caching: false,
        ..speculating(Drafters::Ngram, LawSpec::Fixed(5))
    };
    let executors = pair(config.num_blocks, 100);
    let (engine, mut stepper) = Engine::manual(config, executors, Arc::new(ToyVocabulary)).unwrap();
    let counted = || {
        let metrics = engine.metrics();
        (metrics.draft_tokens(), metrics.accepted_tokens())
    };
    let mut drafts_for = |salt: Option<&str>| {
        let before = counted();
        let ask = Request {
            cache_salt: salt.map(Into::into),
            ..request(vec![4, 5], greedy(40))
        };
        let _generation = engine.submit(ask).unwrap();
        while stepper.step() {}
        let after = counted();
        (after.0 - before.0, after.1 - before.1)
    };
    let alone = drafts_for(Some("a"));
    let (_, accepted) = drafts_for(Some("a"));
    assert!(accepted > alone.1 + 10, "{accepted} after {alone:?}");
    assert_eq!(drafts_for(Some("b")), alone);
    assert_eq!(drafts_for(None), alone);
}

/// Drafters and laws change under sequences that are in the middle of their answers.
#[test]
fn an_operator_changes_everything_and_no_answer_notices() {
    let config = speculating(Drafters::Off, LawSpec::Goodput);
    let executors = pair(config.num_blocks, 70);
    let (engine, mut stepper) = Engine::manual(config, executors, Arc::new(ToyVocabulary)).unwrap();
    let prompts: Vec<Vec<u32>> = (0..4).map(|i| vec![4, 5 + i, 6]).collect();
    let mut open: Vec<_> = prompts
        .iter()
        .map(|prompt| engine.submit(request(prompt.clone(), greedy(200))).unwrap())
        .collect();
    let drafters = [
        Drafters::Model,
        Drafters::Ngram,
        Drafters::Off,
        Drafters::Auto,
    ];
    let laws = [
        LawSpec::Fixed(6),
        LawSpec::Goodput,
        LawSpec::Threshold(Duration::from_secs(1)),
    ];
    let mut changes = 0;
    while stepper.step() {
        engine.set_speculation(SpeculationConfig {
            drafters: drafters[changes % drafters.len()],
            law: laws[changes % laws.len()],
        });
        changes += 1;
    }
    for (prompt, generation) in prompts.iter().zip(&mut open) {
        assert_eq!(Answer::read(generation).ids(), HashLm::greedy(prompt, 200));
    }
    assert!(engine.metrics().accepted_tokens() > 50);
    assert_eq!(engine.metrics().kv_cache_usage(), 0.0, "blocks leaked");
}

#[test]
fn speculation_is_switched_on_and_off_while_it_runs() {
    let config = speculating(Drafters::Off, LawSpec::Fixed(5));
    let executors = pair(config.num_blocks, 100);
    let (engine, mut stepper) = Engine::manual(config, executors, Arc::new(ToyVocabulary)).unwrap();
    let mut generation = engine.submit(request(vec![4, 5], greedy(60))).unwrap();
    for _ in 0..10 {
        stepper.step();
    }
    assert_eq!(engine.metrics().draft_tokens(), 0);
    engine.set_speculation(SpeculationConfig {
        drafters: Drafters::Model,
        law: LawSpec::Fixed(3),
    });
    for _ in 0..5 {
        stepper.step();
    }
    assert_eq!(engine.metrics().draft_tokens(), 15);
    engine.set_speculation(SpeculationConfig::OFF);
    while stepper.step() {}
    assert_eq!(engine.metrics().draft_tokens(), 15);
    assert_eq!(
        Answer::read(&mut generation).ids(),
        HashLm::greedy(&[4, 5], 60)
    );
}

/// Fails from its third step on.
struct Failing(HashLm, usize);

impl Executor for Failing {
    fn execute(&mut self, batch: &Batch, logits: &mut Logits) -> Result<(), ExecuteError> {
        self.1 += 1;
        if self.1 > 2 {
            return Err(ExecuteError("on purpose".to_owned()));
        }
        self.0.execute(batch, logits)
    }

    fn vocab_size(&self) -> usize {
        self.0.vocab_size()
    }
}

#[test]
fn a_drafter_that_fails_costs_no_answer() {
    let config = speculating(Drafters::Model, LawSpec::Fixed(4));
    let executors = Executors {
        draft: Some(Box::new(Failing(HashLm::new(config.num_blocks), 0))),
        ..pair(config.num_blocks, 100)
    };
    let (engine, mut stepper) = Engine::manual(config, executors, Arc::new(ToyVocabulary)).unwrap();
    let mut generation = engine.submit(request(vec![8, 9], greedy(40))).unwrap();
    assert!(engine.speculation().draft_model);
    while stepper.step() {}
    assert_eq!(
        Answer::read(&mut generation).ids(),
        HashLm::greedy(&[8, 9], 40)
    );
    assert!(!engine.speculation().draft_model, "it is not asked again");
    let sampling = Sampling {
        speculative_drafters: Drafters::Model,
        ..greedy(3)
    };
    let refused = engine.submit(request(vec![4, 5], sampling));
    assert_eq!(refused.err(), Some(SubmitError::NoDraftModel));
    let text = encoded(&engine);
    assert_eq!(read_back(&text, DEPTH, ""), Some(0.0), "nobody drafts");
}

fn encoded(engine: &Engine) -> String {
    let mut text = String::new();
    engine.metrics().encode(&mut text);
    text
}

/// The value of a metric's line as a number: one number has several ways to be written down, and a text that begins
/// alike may be another one. `more` are the labels behind those that every line has.
fn read_back(text: &str, metric: &str, more: &str) -> Option<f64> {
    let line = format!(r#"{metric}{{model_name="default",engine="0"{more}}} "#);
    let value = text.lines().find_map(|found| found.strip_prefix(&line))?;
    value.parse().ok()
}

#[test]
fn what_is_shown_of_depth_and_speed_ends_with_speculation() {
    let config = speculating(Drafters::Model, LawSpec::Fixed(2));
    let executors = pair(config.num_blocks, 100);
    let (engine, mut stepper) = Engine::manual(config, executors, Arc::new(ToyVocabulary)).unwrap();
    assert_eq!(read_back(&encoded(&engine), DEPTH, ""), Some(0.0));
    let _generation = engine.submit(request(vec![8, 9], greedy(40))).unwrap();
    for _ in 0..4 {
        stepper.step();
    }
    let text = encoded(&engine);
    assert_eq!(read_back(&text, DEPTH, ""), Some(2.0), "{text}");
    // Which number it is comes from this machine's clock.
    let speedup = engine.speculation().decision.unwrap().speedup;
    assert_eq!(read_back(&text, SPEEDUP, ""), Some(speedup), "{text}");
    engine.set_speculation(SpeculationConfig::OFF);
    stepper.step();
    let text = encoded(&engine);
    assert_eq!(read_back(&text, DEPTH, ""), Some(0.0), "{text}");
    assert_eq!(read_back(&text, SPEEDUP, ""), Some(1.0), "{text}");
    let reason = engine.speculation().decision.unwrap().reason;
    assert_eq!(reason.name(), "nothing_to_draft");
}

/// Behind the end of the draft model's context nobody asks it: it would fail, and then draft for nobody any more.
#[test]
fn an_answer_outgrows_the_context_of_the_draft_model() {
    const CONTEXT: usize = 50;
    let answer = |drafters| {
        let config = speculating(drafters, LawSpec::Fixed(5));
        let executors = Executors {
            draft: Some(Box::new(
                HashLm::new(config.num_blocks).with_context(CONTEXT),
            )),
            ..pair(config.num_blocks, 100)
        };
        let (engine, mut stepper) =
            Engine::manual(config, executors, Arc::new(ToyVocabulary)).unwrap();
        let mut drafted_for = |prompt: &[u32], length| {
            let mut generation = engine
                .submit(request(prompt.to_vec(), greedy(length)))
                .unwrap();
            while stepper.step() {}
            let answer = Answer::read(&mut generation);
            assert_eq!(answer.ids(), HashLm::greedy(prompt, length), "{drafters}");
            answer.drafts.drafted
        };
        let prompt: Vec<u32> = (0..60).collect();
        [
            drafted_for(&prompt[..2], 150),
            drafted_for(&prompt, 20),
            drafted_for(&prompt[..4], 20),
        ]
    };
    assert_eq!(answer(Drafters::Off), [0; 3]);
    let [outgrown, outside, inside] = answer(Drafters::Model);
    // All of them right, so that none stands for two positions.
    assert!((30..CONTEXT).contains(&outgrown), "{outgrown}");
    assert_eq!(outside, 0, "the prompt alone is too long for it");
    assert!(inside >= 15, "{inside}: it is not asked any more");
    answer(Drafters::Auto);
}

#[test]
fn drafts_are_counted_under_the_names_that_tools_for_vllm_expect() {
    let config = speculating(Drafters::Model, LawSpec::Fixed(2));
    let executors = pair(config.num_blocks, 100);
    let (engine, mut stepper) = Engine::manual(config, executors, Arc::new(ToyVocabulary)).unwrap();
    let _generation = engine.submit(request(vec![8, 9], greedy(7))).unwrap();
    while stepper.step() {}
    let text = encoded(&engine);
    for (metric, more, value) in [
        ("vllm:spec_decode_num_drafts_total", "", 2.0),
        ("vllm:spec_decode_num_draft_tokens_total", "", 4.0),
        ("vllm:spec_decode_num_accepted_tokens_total", "", 4.0),
        (
            "vllm:spec_decode_num_accepted_tokens_per_pos_total",
            r#",position="1""#,
            2.0,
        ),
        (
            "forespeak:spec_decode_num_draft_tokens_per_pos_total",
            r#",position="2""#,
            0.0,
        ),
        (
            "forespeak:speculation_decisions_total",
            r#",reason="given""#,
            2.0,
        ),
        (DEPTH, "", 2.0),
    ] {
        let shown = read_back(&text, metric, more);
        assert_eq!(shown, Some(value), "{metric}{more} in\n{text}");
    }
}
