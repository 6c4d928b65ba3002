//! The fields as a client sent them: OpenAI's, and those vLLM added.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::ApiError;
use crate::fields::Fields;
use crate::format::Format;

/// Fields about sampling, of the right type but otherwise unchecked.
#[derive(Debug, Clone, Default)]
pub struct SamplingFields {
    pub(crate) n: Option<usize>,
    pub(crate) temperature: Option<f32>,
    pub(crate) top_p: Option<f32>,
    pub(crate) top_k: Option<i64>,
    pub(crate) min_p: Option<f32>,
    pub(crate) presence_penalty: Option<f32>,
    pub(crate) frequency_penalty: Option<f32>,
    pub(crate) repetition_penalty: Option<f32>,
    pub(crate) logit_bias: BTreeMap<String, f32>,
    pub(crate) seed: Option<i64>,
    pub(crate) stop: Vec<String>,
    pub(crate) stop_token_ids: Vec<u32>,
    pub(crate) include_stop_str_in_output: bool,
    pub(crate) max_tokens: Option<MaxTokens>,
    pub(crate) min_tokens: usize,
    pub(crate) ignore_eos: bool,
    pub(crate) prompt_logprobs: Option<usize>,
    pub(crate) skip_special_tokens: bool,
    pub(crate) priority: i64,
    pub(crate) cache_salt: Option<String>,
    pub(crate) format: Format,
    pub(crate) speculative: Speculative,
}

/// How this request speculates: never what it says, only how fast.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Speculative {
    pub(crate) depth: Option<u64>,
    pub(crate) drafter: Drafter,
    pub(crate) usage: bool,
}

/// Who may draft for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Drafter {
    /// Whoever the server has.
    #[default]
    Auto,
    /// Only its draft model.
    Model,
    /// Only lookups in earlier text.
    Ngram,
    /// Nobody.
    Off,
}

/// The bound on an answer's length and the name under which it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MaxTokens {
    pub(crate) field: &'static str,
    pub(crate) tokens: usize,
}

impl SamplingFields {
    pub(crate) fn read(fields: &Fields<'_>) -> Result<Self, ApiError> {
        Ok(Self {
            n: fields.optional("n")?,
            temperature: fields.optional("temperature")?,
            top_p: fields.optional("top_p")?,
            top_k: fields.optional("top_k")?,
            min_p: fields.optional("min_p")?,
            presence_penalty: fields.optional("presence_penalty")?,
            frequency_penalty: fields.optional("frequency_penalty")?,
            repetition_penalty: fields.optional("repetition_penalty")?,
            logit_bias: fields.or("logit_bias", BTreeMap::new())?,
            seed: fields.optional("seed")?,
            stop: fields.optional("stop")?.map_or(Vec::new(), Stop::into_list),
            stop_token_ids: fields.or("stop_token_ids", Vec::new())?,
            include_stop_str_in_output: fields.or("include_stop_str_in_output", false)?,
            max_tokens: max_tokens(fields)?,
            min_tokens: fields.or("min_tokens", 0)?,
            ignore_eos: fields.or("ignore_eos", false)?,
            prompt_logprobs: fields.optional("prompt_logprobs")?,
            skip_special_tokens: fields.or("skip_special_tokens", true)?,
            priority: fields.or("priority", 0)?,
            cache_salt: fields.optional("cache_salt")?,
            format: Format::read(fields)?,
            speculative: fields.or("speculative", Speculative::default())?,
        })
    }
}

/// `max_completion_tokens` is the newer name of `max_tokens` and wins, as it does at OpenAI.
fn max_tokens(fields: &Fields<'_>) -> Result<Option<MaxTokens>, ApiError> {
    for field in ["max_completion_tokens", "max_tokens"] {
        if let Some(tokens) = fields.optional(field)? {
            return Ok(Some(MaxTokens { field, tokens }));
        }
    }
    Ok(None)
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
enum Stop {
    One(String),
    Many(Vec<String>),
}

impl Stop {
    fn into_list(self) -> Vec<String> {
        match self {
            Stop::One(stop) => vec![stop],
            Stop::Many(stops) => stops,
        }
    }
}
