//! What the streams ask for.

use std::str::FromStr;

use forespeak_engine::Sampling;

use crate::Failure;
use crate::pair::Pair;

/// A kind of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    /// The beginning of a page of documentation goes on.
    Prose,
    /// Questions to the chat.
    Questions,
    /// Chats that ask for a given text again.
    Copying,
    /// Prose at a temperature: not always the likeliest word.
    Sampled,
    /// Tokens by chance: nothing can be guessed.
    Random,
    /// All of these, one after the other.
    Mix,
}

impl Workload {
    pub(crate) const ALL: [Self; 6] = [
        Self::Prose,
        Self::Questions,
        Self::Copying,
        Self::Sampled,
        Self::Random,
        Self::Mix,
    ];

    /// Those of the published tables.
    pub(crate) const USUAL: [Self; 5] = [
        Self::Prose,
        Self::Questions,
        Self::Copying,
        Self::Random,
        Self::Mix,
    ];

    /// What the mix goes through.
    pub(crate) const SHIFTING: [Self; 4] =
        [Self::Prose, Self::Random, Self::Copying, Self::Questions];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Prose => "prose",
            Self::Questions => "questions",
            Self::Copying => "copying",
            Self::Sampled => "sampled",
            Self::Random => "random",
            Self::Mix => "mix",
        }
    }
}

impl FromStr for Workload {
    type Err = Failure;

    fn from_str(name: &str) -> Result<Self, Failure> {
        let found = Self::ALL.into_iter().find(|one| one.name() == name);
        found.ok_or(format!("{name} is no workload").into())
    }
}

const ANSWER: usize = 192;
/// A tokenizer without words, as models of random weights have, makes a thousand tokens of a page. Reading them takes most
/// of the time and says nothing about drafts. The bundled pair's prompts are shorter.
const LONGEST_PROMPT: usize = 256;
const RANDOM_PROMPT: usize = 64;
/// As chats are usually sampled.
const SAMPLED_TEMPERATURE: f32 = 0.8;
/// So even that the choice is nearly uniform.
const RANDOM_TEMPERATURE: f32 = 4.0;

/// A message as the chat template of the bundled pair puts it.
fn chat(message: &str) -> String {
    format!("<|im_start|>user\n{message}<|im_end|>\n<|im_start|>assistant\n")
}

fn greedy() -> Sampling {
    Sampling {
        temperature: 0.0,
        max_tokens: Some(ANSWER),
        ignore_eos: true,
        ..Sampling::default()
    }
}

/// Prompts, made once.
pub(crate) struct Texts {
    prose: Vec<Vec<u32>>,
    questions: Vec<Vec<u32>>,
    copying: Vec<Vec<u32>>,
    random: Vec<Vec<u32>>,
}

impl Texts {
    pub(crate) fn new(pair: &Pair) -> Result<Self, Failure> {
        let encode = |texts: Vec<String>| -> Result<Vec<Vec<u32>>, Failure> {
            let prompt = |text: &String| -> Result<Vec<u32>, Failure> {
                let mut tokens = pair.encode(text)?;
                Ok(tokens.split_off(tokens.len().saturating_sub(LONGEST_PROMPT)))
            };
            texts.iter().map(prompt).collect()
        };
        let prose = include_str!("prose.txt").split("\n---\n");
        let questions = include_str!("questions.txt").lines();
        let copying = include_str!("copying.txt").split("\n---\n");
        let known = pair.target.config().vocab_size as u64;
        let mut state = 1u64;
        let mut next = || {
            // An ordinary 64-bit congruence: any will do.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % (known - 300) + 256) as u32
        };
        let prose = encode(prose.map(|text| text.trim_end().to_owned()).collect())?;
        Ok(Self {
            prose,
            questions: encode(questions.map(chat).collect())?,
            copying: encode(copying.map(|asked| chat(asked.trim_end())).collect())?,
            random: (0..32)
                .map(|_| (0..RANDOM_PROMPT).map(|_| next()).collect())
                .collect(),
        })
    }

    /// The `index`-th request of a workload.
    pub(crate) fn ask(&self, workload: Workload, index: usize) -> (Vec<u32>, Sampling) {
        let prompts = match workload {
            Workload::Prose | Workload::Sampled | Workload::Mix => &self.prose,
            Workload::Questions => &self.questions,
            Workload::Copying => &self.copying,
            Workload::Random => &self.random,
        };
        let prompt = prompts
            .get(index % prompts.len().max(1))
            .cloned()
            .unwrap_or_default();
        let temperature = match workload {
            Workload::Sampled => SAMPLED_TEMPERATURE,
            Workload::Random => RANDOM_TEMPERATURE,
            _ => 0.0,
        };
        let sampling = Sampling {
            temperature,
            seed: Some(index as u64),
            // Who has said a text again has nothing to add.
            ignore_eos: workload != Workload::Copying,
            ..greedy()
        };
        (prompt, sampling)
    }
}
