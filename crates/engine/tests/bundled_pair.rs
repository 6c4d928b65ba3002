//! The pair in `models/`: whoever drafts, the text is the target's own, greedily and with a seed.

#![allow(
    clippy::unwrap_used,
    reason = "tests fail by panicking, and clippy does not take helpers for tests"
)]

mod common;

use std::path::PathBuf;
use std::sync::Arc;

use common::{Answer, greedy, request};
use forespeak_engine::{
    CpuExecutor, Drafters, Engine, EngineConfig, Executors, Request, Sampling, SpeculationConfig,
};
use model::{Compute, KvType, LoadOptions, LoadedModel, Model, ModelSource, Specials, Tier};

const BLOCKS: usize = 128;
const ANSWER: usize = 48;

fn file(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models");
    PathBuf::from(folder).join(name)
}

fn load(name: &str, compute: &Arc<Compute>) -> LoadedModel {
    let options = LoadOptions {
        quantize: None,
        chat_template: None,
        compute: Arc::clone(compute),
        progress: &|_| {},
    };
    Model::load(&ModelSource::Path(file(name)), &options).unwrap()
}

#[test]
fn the_text_is_the_targets_own_whoever_drafts() {
    let compute = Arc::new(Compute::new(Tier::detect(), 1));
    let target = load("forespeak-target.gguf", &compute);
    let draft = load("forespeak-draft.gguf", &compute);
    assert_eq!(target.tokenizer.first_difference(&draft.tokenizer), None);
    let (target, tokenizer, _) = target.into_parts();
    let (target, draft) = (Arc::new(target), Arc::new(draft.model));

    let held_out = std::fs::read_to_string(file("heldout.txt")).unwrap();
    let requests: Vec<Request> = held_out
        .lines()
        .filter(|line| line.len() > 80)
        .take(4)
        .enumerate()
        .map(|(index, line)| {
            let text: String = line.chars().take(160).collect();
            let prompt = tokenizer.encode(&text, Specials::PARSE_AND_ADD).unwrap();
            let sampling = Sampling {
                temperature: if index % 2 == 0 { 0.0 } else { 0.8 },
                top_p: 0.95,
                seed: Some(index as u64),
                logprobs: Some(1),
                ..greedy(ANSWER)
            };
            request(prompt, sampling)
        })
        .collect();
    assert_eq!(requests.len(), 4);

    let answers = |drafters, law: &str| {
        let executor = |model: &Arc<Model>| {
            Box::new(CpuExecutor::new(Arc::clone(model), BLOCKS, KvType::F16).unwrap())
        };
        let executors = Executors {
            target: executor(&target),
            draft: Some(executor(&draft)),
        };
        let config = EngineConfig {
            num_blocks: BLOCKS,
            max_model_len: 512,
            speculation: SpeculationConfig {
                drafters,
                law: law.parse().unwrap(),
            },
            ..EngineConfig::default()
        };
        let vocabulary = Arc::clone(&tokenizer);
        let (engine, mut stepper) = Engine::manual(config, executors, vocabulary).unwrap();
        let submitted = requests.iter().map(|r| engine.submit(r.clone()).unwrap());
        let mut open: Vec<_> = submitted.collect();
        while stepper.step() {}
        let answers: Vec<Answer> = open.iter_mut().map(Answer::read).collect();
        (answers, engine.metrics().accepted_tokens())
    };
    let (expected, accepted) = answers(Drafters::Off, "goodput");
    assert_eq!(accepted, 0);
    for (drafters, law, guessed_right) in [
        (Drafters::Ngram, "fixed:4", false),
        (Drafters::Model, "fixed:1", true),
        (Drafters::Model, "fixed:5", true),
        (Drafters::Auto, "fixed:8", true),
        (Drafters::Auto, "goodput", false),
    ] {
        let (got, accepted) = answers(drafters, law);
        for (got, expected) in got.iter().zip(&expected) {
            assert_eq!(got.essence(), expected.essence(), "{drafters} {law}");
        }
        assert!(accepted > 0 || !guessed_right, "{drafters} {law}");
    }
}
