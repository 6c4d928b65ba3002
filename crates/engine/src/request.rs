//! What goes into the engine and what comes out of it: plain values, no channels.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Arc;

use speculation::Drafters;

/// Who is served first when there is not enough for all. Ordered: a smaller class goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub enum Priority {
    /// Served first, preempted last.
    High,
    /// The default.
    #[default]
    Normal,
    /// Served when nobody else waits, preempted first.
    Low,
}

/// One generation asked of the engine. All numbers were validated by the caller; the engine checks
/// only what it alone knows (does it fit the model and the cache).
#[derive(Debug, Clone)]
pub struct Request {
    /// Name for logs.
    pub id: Arc<str>,
    /// The prompt, never empty.
    pub prompt: Vec<u32>,
    /// How to choose tokens and when to stop.
    pub sampling: Sampling,
    /// Its class.
    pub priority: Priority,
    /// Requests with different salts never share KV blocks.
    pub cache_salt: Option<Arc<str>>,
}

/// How tokens are chosen and when generation ends. [`Default`] is OpenAI's default: temperature 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Number of answers (choices).
    pub n: usize,
    /// 0 is greedy.
    pub temperature: f32,
    /// 1 keeps all.
    pub top_p: f32,
    /// 0 keeps all.
    pub top_k: usize,
    /// 0 keeps all.
    pub min_p: f32,
    /// Subtracted from every token generated so far.
    pub presence_penalty: f32,
    /// Subtracted from a token once for each time it was generated.
    pub frequency_penalty: f32,
    /// Divides positive and multiplies negative scores of tokens in prompt or answer; 1 is off.
    pub repetition_penalty: f32,
    /// Added to the scores of these tokens.
    pub logit_bias: BTreeMap<u32, f32>,
    /// Same seed, same text, whatever else runs. `None`: drawn by the engine at submission.
    pub seed: Option<u64>,
    /// Strings that end the answer.
    pub stop: Vec<String>,
    /// Tokens that end the answer, besides the model's own.
    pub stop_token_ids: Vec<u32>,
    /// Keep the stop string in the text.
    pub include_stop: bool,
    /// Most tokens to generate for each choice. `None`: as many as the model's length allows.
    pub max_tokens: Option<usize>,
    /// No end before so many tokens.
    pub min_tokens: usize,
    /// Go on past the model's end-of-text token.
    pub ignore_eos: bool,
    /// Report the chosen token's log-probability and those of the `k` best, from the model's raw scores.
    pub logprobs: Option<usize>,
    /// The same for every prompt token.
    pub prompt_logprobs: Option<usize>,
    /// Leave special tokens out of the text.
    pub skip_special_tokens: bool,
    /// What the text must look like.
    pub format: Format,
    /// Most tokens to draft in one step; 0 turns speculation off for this request. `None`: as many as
    /// the engine finds worth it. What is promised of the text does not depend on it.
    pub speculative_depth: Option<usize>,
    /// Who may draft for this request, of those who may draft at all.
    pub speculative_drafters: Drafters,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            n: 1,
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            logit_bias: BTreeMap::new(),
            seed: None,
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            include_stop: false,
            max_tokens: None,
            min_tokens: 0,
            ignore_eos: false,
            logprobs: None,
            prompt_logprobs: None,
            skip_special_tokens: true,
            format: Format::Text,
            speculative_depth: None,
            speculative_drafters: Drafters::Auto,
        }
    }
}

/// What the answer must look like.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Format {
    /// Anything.
    #[default]
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON that satisfies this schema.
    JsonSchema(serde_json::Value),
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FinishReason {
    /// The model's end-of-text token, a stop string or a stop token.
    Stop,
    /// `max_tokens` or the model's length.
    Length,
}

/// One generated (or prompt) token.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// Present when log-probabilities were asked for.
    pub logprob: Option<TokenLogprob>,
}

/// Log-probability of a token and of the best alternatives, best first.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprob {
    /// Of the token itself.
    pub logprob: f32,
    /// Its place among all tokens, from 1 on; of equally likely ones the lower id comes first.
    pub rank: usize,
    /// The best tokens with their log-probabilities.
    pub top: Vec<(u32, f32)>,
}

/// What the engine tells of a generation, in this order: one `Started`, then per choice any number of
/// `Delta` and one `Finished`; or one `Failed` at any time, and nothing after it.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    /// The prompt has been read; the first token comes with the next update.
    Started {
        /// Prompt tokens that came out of the prefix cache.
        cached_tokens: usize,
        /// One per prompt token when asked for; the first has no log-probability.
        prompt: Vec<Token>,
    },
    /// A piece of a choice's text: whole characters, never part of a stop string that may still match.
    Delta {
        /// Which of the `n` choices.
        choice: usize,
        /// May be empty while a character or a stop string is incomplete.
        text: String,
        /// The tokens behind it.
        tokens: Vec<Token>,
    },
    /// A choice is complete. Its last text came before or comes with it.
    Finished {
        /// Which of the `n` choices.
        choice: usize,
        /// Text held back until the end.
        text: String,
        /// Why.
        reason: FinishReason,
        /// The stop string or token that matched, as OpenAI-compatible servers report it.
        stop: Option<StopMatch>,
        /// How speculation did for it.
        drafts: DraftCounts,
    },
    /// The engine could not go on; the text says what happened.
    Failed(String),
}

/// Tokens that were drafted for a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DraftCounts {
    /// Tokens drafted and verified.
    pub drafted: usize,
    /// Those of them that became text.
    pub accepted: usize,
}

impl AddAssign for DraftCounts {
    fn add_assign(&mut self, other: Self) {
        self.drafted += other.drafted;
        self.accepted += other.accepted;
    }
}

/// What ended an answer with [`FinishReason::Stop`], when it was not the model's own end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopMatch {
    /// A stop string.
    Text(String),
    /// A stop token.
    Token(u32),
}
