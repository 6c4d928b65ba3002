//! The promise of batch invariance: tokens and log-probabilities are the same to the last bit, however a
//! request is batched, chunked, helped by the cache, preempted and computed again, or speculated.

#![allow(
    clippy::unwrap_used,
    reason = "tests fail by panicking, and clippy does not take helpers for tests"
)]

mod common;

use std::sync::Arc;

use common::{Answer, Random, request};
use forespeak_engine::{
    CpuExecutor, Drafters, Engine, EngineConfig, Executors, Format, LawSpec, Request, Sampling,
    SpeculationConfig, StopMatch, Vocabulary,
};
use model::{BLOCK_TOKENS, Compute, KvType, LoadOptions, LoadedModel, Model, ModelSource, Tier};
use testkit::hash_lm::{HashLm, ToyVocabulary};
use testkit::tiny_models::{TinyFormat, TinyModel};

const PROMPT: usize = 45;
const ANSWER: usize = 30;
const BLOCKS_EACH: usize = (PROMPT + ANSWER).div_ceil(BLOCK_TOKENS);

/// One way to compute the same thing.
#[derive(Debug, Clone, Copy)]
struct Way {
    batch: usize,
    chunk: usize,
    /// Whether the prompts were seen before.
    warm: bool,
    /// Whether blocks run out on the way.
    tight: bool,
    /// Who guesses ahead.
    drafters: Drafters,
    /// How far.
    law: LawSpec,
}

/// Makes executors for one model, with room for so many blocks.
type Make<'a> = &'a dyn Fn(usize) -> Executors;

/// Everything that has a say in which token comes next, greedily and with a seed.
fn options() -> Vec<Sampling> {
    let numbers = serde_json::json!({
        "type": "array",
        "items": {"type": "integer", "minimum": 0, "maximum": 99},
        "minItems": 5,
    });
    vec![
        Sampling::default(),
        Sampling {
            top_k: 20,
            top_p: 0.9,
            min_p: 0.01,
            ..Sampling::default()
        },
        Sampling {
            repetition_penalty: 1.2,
            presence_penalty: 0.5,
            frequency_penalty: 0.4,
            ..Sampling::default()
        },
        Sampling {
            logit_bias: [(5, 2.0), (9, 1.5), (33, -100.0)].into(),
            ..Sampling::default()
        },
        Sampling {
            format: Format::JsonSchema(numbers),
            ..Sampling::default()
        },
        Sampling {
            n: 3,
            ..Sampling::default()
        },
    ]
}

fn requests(make: Make<'_>, vocabulary: &Arc<dyn Vocabulary>) -> Vec<Request> {
    let vocab = vocabulary.vocab_size();
    let mut random = Random(3);
    let mut requests = Vec::new();
    for option in options() {
        for temperature in [0.0, 0.8] {
            let prompt = (0..PROMPT).map(|_| random.range(0, vocab) as u32).collect();
            let sampling = Sampling {
                temperature,
                seed: Some(requests.len() as u64),
                max_tokens: Some(ANSWER),
                ignore_eos: option.format == Format::Text,
                logprobs: Some(3),
                ..option.clone()
            };
            requests.push(request(prompt, sampling));
        }
    }
    // Stop strings that surely come, over the borders of tokens: out of what is said without them.
    let unstopped = requests[..2].to_vec();
    for (answer, unstopped) in answers(make, vocabulary, &unstopped, PLAIN)
        .iter()
        .zip(unstopped)
    {
        let said: Vec<char> = answer.choices[&0].text.chars().collect();
        let sampling = Sampling {
            stop: vec![said[said.len() / 2..][..3].iter().collect()],
            ..unstopped.sampling
        };
        requests.push(request(unstopped.prompt, sampling));
    }
    requests
}

fn load(format: TinyFormat, threads: usize) -> LoadedModel {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    let recipe = TinyModel {
        format,
        ..TinyModel::default()
    };
    recipe.write_gguf(&path).unwrap();
    let options = LoadOptions {
        quantize: None,
        chat_template: None,
        compute: Arc::new(Compute::new(Tier::detect(), threads)),
        progress: &|_| {},
    };
    Model::load(&ModelSource::Path(path), &options).unwrap()
}

/// Drafts that were so deep.
fn drafts_of(depth: usize, engine: &Engine) -> u64 {
    let mut page = String::new();
    engine.metrics().encode(&mut page);
    let position = format!("position=\"{}\"}} ", depth - 1);
    page.lines()
        .filter(|line| line.starts_with("forespeak:spec_decode_num_draft_tokens_per_pos_total"))
        .find_map(|line| line.split_once(&position))
        .map_or(0, |(_, count)| count.parse().unwrap())
}

fn answers(
    make: Make<'_>,
    vocabulary: &Arc<dyn Vocabulary>,
    requests: &[Request],
    way: Way,
) -> Vec<Answer> {
    let blocks = if way.tight {
        // Enough to admit three, too little for them to finish together.
        (way.batch.min(3) * BLOCKS_EACH - 2).max(BLOCKS_EACH)
    } else {
        way.batch * BLOCKS_EACH * 4
    };
    let config = EngineConfig {
        num_blocks: blocks,
        max_model_len: PROMPT + ANSWER,
        max_num_seqs: way.batch,
        max_num_batched_tokens: way.chunk.max(way.batch),
        enable_prefix_caching: way.warm,
        speculation: SpeculationConfig {
            drafters: way.drafters,
            law: way.law,
        },
        ..EngineConfig::default()
    };
    let (engine, mut stepper) =
        Engine::manual(config, make(blocks), Arc::clone(vocabulary)).unwrap();
    let mut answers = Vec::new();
    for together in requests.chunks(way.batch) {
        let rounds = if way.warm { 2 } else { 1 };
        for round in 0..rounds {
            let mut open: Vec<_> = together
                .iter()
                .map(|request| engine.submit(request.clone()).unwrap())
                .collect();
            while stepper.step() {}
            let round_answers = open.iter_mut().map(Answer::read);
            if round + 1 == rounds {
                answers.extend(round_answers);
            }
        }
    }
    if way.warm && !way.tight {
        assert!(answers.iter().all(|a| a.cached_tokens > 0), "{way:?}");
    }
    // What goodput does is a matter of time.
    if let LawSpec::Fixed(depth) = way.law {
        let looked_up = way.drafters == Drafters::Ngram;
        if way.drafters != Drafters::Off && (!looked_up || way.warm) {
            assert!(engine.metrics().accepted_tokens() > 0, "{way:?}");
        }
        // Whatever a request asks for, guesses are made for it where there is room, as deep as there are rows.
        if way.drafters == Drafters::Model && way.batch == 1 && !way.tight {
            assert!(answers.iter().all(|a| a.drafts.drafted > 0), "{way:?}");
            let deepest = depth.min(way.chunk - 1);
            assert!(drafts_of(deepest, &engine) > 0, "{way:?}");
            assert_eq!(drafts_of(deepest + 1, &engine), 0, "{way:?}");
        }
    }
    // Guesses let answers end at different times, so that blocks may suffice after all.
    if way.tight && way.batch > 1 && way.drafters == Drafters::Off {
        assert!(engine.metrics().preemptions() > 0, "{way:?}");
    }
    answers
}

const PLAIN: Way = Way {
    batch: 1,
    chunk: 1024,
    warm: false,
    tight: false,
    drafters: Drafters::Off,
    law: LawSpec::Fixed(0),
};

/// Whether an answer is of the kind that was asked for.
fn is_whole(answer: &Answer, asked: &Sampling) -> bool {
    let end = answer.choices[&0].end.clone();
    match asked.stop.first() {
        Some(stop) => end.is_some_and(|(_, by)| by == Some(StopMatch::Text(stop.clone()))),
        None => asked.format != Format::Text || answer.ids().len() == ANSWER,
    }
}

fn check_all_ways(
    make: Make<'_>,
    vocabulary: &Arc<dyn Vocabulary>,
    requests: &[Request],
    expected: &[Answer],
) {
    for (Request { sampling, .. }, expected) in requests.iter().zip(expected) {
        assert_eq!(expected.choices.len(), sampling.n);
        assert!(is_whole(expected, sampling), "{sampling:?}");
        assert!(expected.ids().len() > 5, "{sampling:?}");
    }
    let drafters = [
        Drafters::Off,
        Drafters::Ngram,
        Drafters::Model,
        Drafters::Auto,
    ];
    for drafters in drafters {
        // Goodput is tried with the drafters that it has to choose from.
        let shallow = match drafters {
            Drafters::Auto => LawSpec::Goodput,
            _ => LawSpec::Fixed(1),
        };
        let chunks_and_laws = [
            (7, LawSpec::Fixed(4)),
            (16, shallow),
            (40, LawSpec::Fixed(16)),
        ];
        for batch in [1, 3, 8] {
            for (chunk, law) in chunks_and_laws {
                for (warm, tight) in [(false, false), (true, false), (false, true), (true, true)] {
                    let way = Way {
                        batch,
                        chunk,
                        warm,
                        tight,
                        drafters,
                        law,
                    };
                    let got = answers(make, vocabulary, requests, way);
                    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
                        assert_eq!(got.essence(), expected.essence(), "request {i}, {way:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_hash_lm_answers_the_same_in_every_way() {
    let vocabulary: Arc<dyn Vocabulary> = Arc::new(ToyVocabulary);
    let make = |blocks| Executors {
        target: Box::new(HashLm::new(blocks)),
        draft: Some(Box::new(HashLm::drafter(blocks, 80))),
    };
    let requests = requests(&make, &vocabulary);
    let expected = answers(&make, &vocabulary, &requests, PLAIN);
    check_all_ways(&make, &vocabulary, &requests, &expected);
}

/// Also across numbers of threads: all are held against what one thread gives.
fn check_model(format: TinyFormat, kv_type: KvType) {
    let mut expected: Option<(Vec<Request>, Vec<Answer>)> = None;
    for threads in [1, 2] {
        let (model, tokenizer, _) = load(format, threads).into_parts();
        let model = Arc::new(model);
        // The same weights, rounded: a drafter that is right more often than not.
        let draft = Arc::new(load(TinyFormat::Q8_0, threads).model);
        let vocabulary: Arc<dyn Vocabulary> = tokenizer;
        let make = |blocks| {
            let executor = |model| CpuExecutor::new(Arc::clone(model), blocks, kv_type).unwrap();
            Executors {
                target: Box::new(executor(&model)),
                draft: Some(Box::new(executor(&draft))),
            }
        };
        let (requests, expected) = expected.get_or_insert_with(|| {
            let requests = requests(&make, &vocabulary);
            let answers = answers(&make, &vocabulary, &requests, PLAIN);
            (requests, answers)
        });
        check_all_ways(&make, &vocabulary, requests, expected);
    }
}

#[test]
fn a_model_with_f16_cache_answers_the_same_in_every_way() {
    check_model(TinyFormat::F32, KvType::F16);
}

#[test]
fn a_quantised_model_with_f16_cache_answers_the_same_in_every_way() {
    check_model(TinyFormat::Q8_0, KvType::F16);
}

#[test]
fn a_quantised_model_with_int8_cache_answers_the_same_in_every_way() {
    check_model(TinyFormat::Q8_0, KvType::Int8);
}
