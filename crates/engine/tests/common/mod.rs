//! What the integration tests share: requests, answers, and randomness that can be replayed.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test uses a part of it, and tests fail by panicking"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use forespeak_engine::{
    DraftCounts, Drafters, Engine, EngineConfig, FinishReason, Format, Generation, Priority,
    Request, Sampling, SpeculationConfig, StopMatch, Token, Update,
};
use testkit::hash_lm::{HashLm, ToyVocabulary};

/// An engine over the hash-LM, on its own thread.
pub(crate) fn hash_engine(config: &EngineConfig) -> Engine {
    let lm = Box::new(HashLm::new(config.num_blocks));
    Engine::start(config.clone(), lm, Arc::new(ToyVocabulary)).unwrap()
}

pub(crate) fn request(prompt: Vec<u32>, sampling: Sampling) -> Request {
    Request {
        id: "test".into(),
        prompt,
        sampling,
        priority: Priority::Normal,
        cache_salt: None,
    }
}

pub(crate) fn greedy(max_tokens: usize) -> Sampling {
    Sampling {
        temperature: 0.0,
        max_tokens: Some(max_tokens),
        ignore_eos: true,
        ..Sampling::default()
    }
}

/// All that came out of a generation.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Answer {
    pub(crate) cached_tokens: usize,
    pub(crate) prompt: Vec<Token>,
    pub(crate) choices: BTreeMap<usize, Choice>,
    pub(crate) failed: Option<String>,
    pub(crate) drafts: DraftCounts,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Choice {
    pub(crate) text: String,
    pub(crate) tokens: Vec<Token>,
    pub(crate) end: Option<(FinishReason, Option<StopMatch>)>,
}

impl Choice {
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }
}

impl Answer {
    /// Reads a generation to its end, checking the order of updates on the way.
    pub(crate) fn read(generation: &mut Generation) -> Self {
        let mut answer = Self::default();
        let mut started = false;
        while let Some(update) = generation.blocking_recv() {
            match update {
                Update::Started {
                    cached_tokens,
                    prompt,
                } => {
                    assert!(!started, "started twice");
                    started = true;
                    answer.cached_tokens = cached_tokens;
                    answer.prompt = prompt;
                }
                Update::Delta {
                    choice,
                    text,
                    tokens,
                } => {
                    assert!(started, "a delta before the start");
                    let choice = answer.choices.entry(choice).or_default();
                    assert!(choice.end.is_none(), "a delta after the end");
                    choice.text.push_str(&text);
                    choice.tokens.extend(tokens);
                }
                Update::Finished {
                    choice,
                    text,
                    reason,
                    stop,
                    drafts,
                } => {
                    let choice = answer.choices.entry(choice).or_default();
                    assert!(choice.end.is_none(), "finished twice");
                    choice.text.push_str(&text);
                    choice.end = Some((reason, stop));
                    answer.drafts += drafts;
                }
                Update::Failed(error) => answer.failed = Some(error),
            }
        }
        answer
    }

    /// What must not depend on anything but the request.
    pub(crate) fn essence(&self) -> (&[Token], &BTreeMap<usize, Choice>, &Option<String>) {
        (&self.prompt, &self.choices, &self.failed)
    }

    pub(crate) fn ids(&self) -> Vec<u32> {
        self.choices.get(&0).map(Choice::ids).unwrap_or_default()
    }
}

/// Small, fast, and the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `low..high`.
    pub(crate) fn range(&mut self, low: usize, high: usize) -> usize {
        low + (self.next() % (high - low) as u64) as usize
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }

    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.range(0, of.len())].clone()
    }

    pub(crate) fn tokens(&mut self, count: usize) -> Vec<u32> {
        (0..count)
            .map(|_| self.range(0, HashLm::VOCAB) as u32)
            .collect()
    }
}

/// Forms that leave the model much to choose, and little.
fn formats() -> [Format; 2] {
    let schema = serde_json::json!({
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "yz"]}},
        "required": ["a", "b"],
        "additionalProperties": false,
    });
    [Format::JsonObject, Format::JsonSchema(schema)]
}

/// A request of any kind; its prompt begins like one of a few texts.
pub(crate) fn any_request(random: &mut Random, texts: &[Vec<u32>], longest: usize) -> Request {
    let text = random.pick(texts);
    let shared = random.range(0, text.len().min(longest - 1) + 1);
    let mut prompt = text[..shared].to_vec();
    let room = longest - 1 - shared;
    let own = random.range(0, room.min(24) + 1);
    prompt.extend(random.tokens(own));
    if prompt.is_empty() {
        prompt.push(5);
    }
    let format = if random.one_in(12) {
        random.pick(&formats())
    } else {
        Format::Text
    };
    let sampling = Sampling {
        n: if random.one_in(4) {
            random.range(2, 4)
        } else {
            1
        },
        temperature: random.pick(&[0.0, 0.0, 0.7, 1.0]),
        top_k: random.pick(&[0, 0, 3, 20]),
        top_p: random.pick(&[1.0, 1.0, 0.8]),
        min_p: random.pick(&[0.0, 0.0, 0.05]),
        repetition_penalty: random.pick(&[1.0, 1.0, 1.3]),
        presence_penalty: random.pick(&[0.0, 0.0, 0.5]),
        frequency_penalty: random.pick(&[0.0, 0.0, 0.4]),
        logit_bias: if random.one_in(6) {
            [(9, 3.0), (33, -100.0)].into()
        } else {
            BTreeMap::new()
        },
        format: format.clone(),
        seed: Some(random.next()),
        stop: if random.one_in(3) {
            vec![
                "stop".to_owned(),
                random.pick(&["a", "bc", "€", "e "]).to_owned(),
            ]
        } else {
            Vec::new()
        },
        include_stop: random.one_in(2),
        stop_token_ids: if random.one_in(4) {
            vec![7, 40]
        } else {
            Vec::new()
        },
        max_tokens: if random.one_in(12) {
            None
        } else {
            Some(random.range(0, 40))
        },
        // A form may be complete before.
        min_tokens: if format == Format::Text && random.one_in(4) {
            5
        } else {
            0
        },
        ignore_eos: random.one_in(2),
        logprobs: random.pick(&[None, None, Some(0), Some(3)]),
        prompt_logprobs: random.pick(&[None, None, None, Some(2)]),
        speculative_depth: random.pick(&[None, None, None, Some(0), Some(2)]),
        speculative_drafters: random.pick(&[Drafters::Auto, Drafters::Auto, Drafters::Ngram]),
        ..Sampling::default()
    };
    Request {
        priority: random.pick(&[Priority::High, Priority::Normal, Priority::Low]),
        cache_salt: random.pick(&[None, None, None, None, Some("a".into()), Some("b".into())]),
        ..request(prompt, sampling)
    }
}

/// The answer of a request that has the engine for itself.
pub(crate) fn alone(config: &EngineConfig, request: &Request) -> Answer {
    let config = EngineConfig {
        max_num_seqs: 8,
        max_num_batched_tokens: 1024,
        enable_prefix_caching: false,
        max_model_len: config.longest_sequence(),
        num_blocks: 200,
        speculation: SpeculationConfig::OFF,
        ..config.clone()
    };
    let lm = Box::new(HashLm::new(config.num_blocks));
    let (engine, mut stepper) = Engine::manual(config, lm, Arc::new(ToyVocabulary)).unwrap();
    let mut generation = engine.submit(request.clone()).unwrap();
    while stepper.step() {}
    Answer::read(&mut generation)
}
