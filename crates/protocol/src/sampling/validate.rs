//! The bounds, and the type of what is within them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::types::{Drafter, SamplingFields};
use crate::error::ApiError;
use crate::format::Format;
use crate::limits;

/// Who is served first. vLLM's integers are three classes here: below 0, 0, above 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    /// Served first.
    High,
    /// The default.
    #[default]
    Normal,
    /// Served when nobody else waits.
    Low,
}

/// Sampling within all bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Answers to each prompt, 1 to [`limits::MAX_N`].
    pub n: usize,
    /// 0 is greedy.
    pub temperature: f32,
    /// Above 0; 1 keeps all.
    pub top_p: f32,
    /// 0 keeps all.
    pub top_k: usize,
    /// 0 keeps all.
    pub min_p: f32,
    /// 0 is off.
    pub presence_penalty: f32,
    /// 0 is off.
    pub frequency_penalty: f32,
    /// 1 is off.
    pub repetition_penalty: f32,
    /// Token ids and what is added to their scores. Whether the model has these tokens is not known here.
    pub logit_bias: BTreeMap<u32, f32>,
    /// Same seed, same text.
    pub seed: Option<u64>,
    /// None of them is empty.
    pub stop: Vec<String>,
    /// Tokens that end an answer.
    pub stop_token_ids: Vec<u32>,
    /// Keep the stop string in the text.
    pub include_stop: bool,
    /// At least 1 when given.
    pub max_tokens: Option<usize>,
    /// At most `max_tokens`.
    pub min_tokens: usize,
    /// Go on past the end-of-text token.
    pub ignore_eos: bool,
    /// Log-probabilities of prompt tokens with so many alternatives.
    pub prompt_logprobs: Option<usize>,
    /// Leave special tokens out of the text.
    pub skip_special_tokens: bool,
    /// The class.
    pub priority: Priority,
    /// Requests with different salts share no cached prefix.
    pub cache_salt: Option<String>,
    /// What the text must look like.
    pub format: Format,
    /// Most tokens to draft in one step, at most [`limits::MAX_SPECULATIVE_DEPTH`]; 0 turns speculation off.
    pub speculative_depth: Option<usize>,
    /// Who may draft.
    pub speculative_drafter: Drafter,
    /// Whether the usage tells how speculation did.
    pub speculative_usage: bool,
}

impl SamplingFields {
    /// Checks every bound.
    pub fn validate(self) -> Result<Sampling, ApiError> {
        self.validate_with(1)
    }

    /// The same with another lower bound of `max_tokens`.
    pub(crate) fn validate_with(self, fewest_tokens: usize) -> Result<Sampling, ApiError> {
        let max_tokens = self.max_tokens.map(|given| given.tokens);
        if let Some(given) = self.max_tokens
            && given.tokens < fewest_tokens
        {
            return Err(ApiError::invalid(
                given.field,
                format!("{} must be at least {fewest_tokens}", given.field),
            ));
        }
        if max_tokens.is_some_and(|most| self.min_tokens > most) {
            return Err(ApiError::invalid(
                "min_tokens",
                "min_tokens must not be larger than max_tokens",
            ));
        }
        let top_p = within("top_p", self.top_p, 1.0, 0.0..=1.0)?;
        Ok(Sampling {
            n: count("n", self.n.unwrap_or(1), limits::MAX_N)?,
            temperature: within(
                "temperature",
                self.temperature,
                1.0,
                0.0..=limits::MAX_TEMPERATURE,
            )?,
            // OpenAI allows 0, which can only mean "the best token": the smallest mass does that.
            top_p: top_p.max(f32::MIN_POSITIVE),
            top_k: top_k(self.top_k)?,
            min_p: within("min_p", self.min_p, 0.0, 0.0..=1.0)?,
            presence_penalty: penalty("presence_penalty", self.presence_penalty)?,
            frequency_penalty: penalty("frequency_penalty", self.frequency_penalty)?,
            repetition_penalty: within(
                "repetition_penalty",
                self.repetition_penalty,
                1.0,
                f32::MIN_POSITIVE..=limits::MAX_REPETITION_PENALTY,
            )?,
            logit_bias: logit_bias(self.logit_bias)?,
            seed: self.seed.map(i64::cast_unsigned),
            stop: stop(self.stop)?,
            stop_token_ids: at_most(
                "stop_token_ids",
                self.stop_token_ids,
                limits::MAX_STOP_TOKENS,
            )?,
            include_stop: self.include_stop_str_in_output,
            max_tokens,
            min_tokens: self.min_tokens,
            ignore_eos: self.ignore_eos,
            prompt_logprobs: top_logprobs("prompt_logprobs", self.prompt_logprobs)?,
            skip_special_tokens: self.skip_special_tokens,
            priority: match self.priority {
                ..0 => Priority::High,
                0 => Priority::Normal,
                1.. => Priority::Low,
            },
            cache_salt: cache_salt(self.cache_salt)?,
            format: self.format,
            speculative_depth: speculative_depth(self.speculative.depth)?,
            speculative_drafter: self.speculative.drafter,
            speculative_usage: self.speculative.usage,
        })
    }
}

fn speculative_depth(depth: Option<u64>) -> Result<Option<usize>, ApiError> {
    let most = limits::MAX_SPECULATIVE_DEPTH;
    match depth.map(usize::try_from) {
        None => Ok(None),
        Some(Ok(depth)) if depth <= most => Ok(Some(depth)),
        Some(_) => Err(ApiError::invalid(
            "speculative",
            format!("speculative.depth must be at least 0 (off) and at most {most}"),
        )),
    }
}

/// A number of log-probabilities, under whatever name the route has for it.
pub(crate) fn top_logprobs(
    field: &'static str,
    value: Option<usize>,
) -> Result<Option<usize>, ApiError> {
    match value {
        Some(value) if value > limits::MAX_TOP_LOGPROBS => Err(ApiError::invalid(
            field,
            format!(
                "{field} must be at most {}, not {value}",
                limits::MAX_TOP_LOGPROBS
            ),
        )),
        value => Ok(value),
    }
}

fn within(
    field: &'static str,
    value: Option<f32>,
    default: f32,
    range: RangeInclusive<f32>,
) -> Result<f32, ApiError> {
    let value = value.unwrap_or(default);
    if range.contains(&value) {
        return Ok(value);
    }
    let low = if *range.start() == f32::MIN_POSITIVE {
        "above 0".to_owned()
    } else {
        format!("at least {}", range.start())
    };
    Err(ApiError::invalid(
        field,
        format!(
            "{field} must be {low} and at most {}, not {value}",
            range.end()
        ),
    ))
}

fn penalty(field: &'static str, value: Option<f32>) -> Result<f32, ApiError> {
    within(
        field,
        value,
        0.0,
        -limits::MAX_PENALTY..=limits::MAX_PENALTY,
    )
}

fn count(field: &'static str, value: usize, most: usize) -> Result<usize, ApiError> {
    if (1..=most).contains(&value) {
        Ok(value)
    } else {
        Err(ApiError::invalid(
            field,
            format!("{field} must be at least 1 and at most {most}, not {value}"),
        ))
    }
}

fn at_most<T>(field: &'static str, list: Vec<T>, most: usize) -> Result<Vec<T>, ApiError> {
    if list.len() <= most {
        Ok(list)
    } else {
        Err(ApiError::invalid(
            field,
            format!("{field} has {} entries; send at most {most}", list.len()),
        ))
    }
}

fn top_k(value: Option<i64>) -> Result<usize, ApiError> {
    match value.unwrap_or(0) {
        // vLLM's word for "all".
        -1 => Ok(0),
        k => usize::try_from(k).map_err(|_| {
            ApiError::invalid("top_k", format!("top_k must be -1, 0 or larger, not {k}"))
        }),
    }
}

fn logit_bias(entries: BTreeMap<String, f32>) -> Result<BTreeMap<u32, f32>, ApiError> {
    if entries.len() > limits::MAX_LOGIT_BIAS {
        return Err(ApiError::invalid(
            "logit_bias",
            format!(
                "logit_bias has {} entries; send at most {}",
                entries.len(),
                limits::MAX_LOGIT_BIAS
            ),
        ));
    }
    let mut biases = BTreeMap::new();
    for (token, bias) in entries {
        let id = token.parse().map_err(|_| {
            ApiError::invalid(
                "logit_bias",
                format!(
                    "logit_bias: {token:?} is not a token id; keys are ids as /tokenize gives them"
                ),
            )
        })?;
        if !(-limits::MAX_BIAS..=limits::MAX_BIAS).contains(&bias) {
            return Err(ApiError::invalid(
                "logit_bias",
                format!(
                    "logit_bias of token {id} must be at least -{max} and at most {max}, not {bias}",
                    max = limits::MAX_BIAS
                ),
            ));
        }
        biases.insert(id, bias);
    }
    Ok(biases)
}

fn stop(stops: Vec<String>) -> Result<Vec<String>, ApiError> {
    let stops = at_most("stop", stops, limits::MAX_STOP_STRINGS)?;
    if stops.iter().any(String::is_empty) {
        return Err(ApiError::invalid(
            "stop",
            "stop must not contain an empty string",
        ));
    }
    if stops.iter().any(|stop| stop.len() > limits::MAX_STOP_BYTES) {
        return Err(ApiError::invalid(
            "stop",
            format!(
                "a stop string must be at most {} bytes",
                limits::MAX_STOP_BYTES
            ),
        ));
    }
    Ok(stops)
}

fn cache_salt(salt: Option<String>) -> Result<Option<String>, ApiError> {
    match salt {
        Some(salt) if salt.is_empty() || salt.len() > limits::MAX_NAME_BYTES => {
            Err(ApiError::invalid(
                "cache_salt",
                format!(
                    "cache_salt must have at least 1 and at most {} bytes",
                    limits::MAX_NAME_BYTES
                ),
            ))
        }
        salt => Ok(salt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Fields;

    fn sampling(body: &str) -> Result<Sampling, ApiError> {
        SamplingFields::read(&Fields::parse(body.as_bytes())?)?.validate()
    }

    #[test]
    fn nothing_given_is_openai_default() {
        let sampling = sampling("{}").unwrap();
        assert_eq!(sampling.n, 1);
        assert_eq!(sampling.temperature, 1.0);
        assert_eq!(sampling.top_p, 1.0);
        assert_eq!(sampling.max_tokens, None);
        assert!(sampling.skip_special_tokens);
        assert_eq!(sampling.format, Format::Text);
    }

    #[test]
    fn every_bound_names_its_field() {
        let many = format!("{:?}", vec!["x"; limits::MAX_STOP_STRINGS + 1]);
        let long = format!("\"{}\"", "x".repeat(limits::MAX_STOP_BYTES + 1));
        for (field, value) in [
            ("n", "0"),
            ("n", "129"),
            ("temperature", "-0.1"),
            ("temperature", "2.1"),
            ("temperature", "1e39"),
            ("top_p", "1.1"),
            ("top_k", "-2"),
            ("min_p", "2"),
            ("presence_penalty", "-2.5"),
            ("frequency_penalty", "3"),
            ("repetition_penalty", "0"),
            ("logit_bias", r#"{"cat": 1}"#),
            ("logit_bias", r#"{"7": 101}"#),
            ("stop", "\"\""),
            ("stop", &many),
            ("stop", &long),
            ("stop", "3"),
            ("max_tokens", "0"),
            ("max_tokens", "-1"),
            ("max_completion_tokens", "0"),
            ("prompt_logprobs", "21"),
            ("cache_salt", "\"\""),
            ("speculative", r#"{"depth": 17}"#),
            ("speculative", r#"{"depth": -1}"#),
            ("speculative", r#"{"deep": 2}"#),
            ("speculative", r#"{"drafter": "oracle"}"#),
            ("speculative", r#"{"drafter": 1}"#),
            ("speculative", "3"),
            ("seed", "\"x\""),
            ("stop_token_ids", "[-1]"),
        ] {
            let error = sampling(&format!("{{\"{field}\": {value}}}")).unwrap_err();
            assert_eq!(error.param(), Some(field), "{error}");
            assert_eq!(error.kind().status(), 400);
        }
    }

    #[test]
    fn min_tokens_above_max_tokens_is_refused() {
        let error = sampling(r#"{"max_tokens": 2, "min_tokens": 3}"#).unwrap_err();
        assert_eq!(error.param(), Some("min_tokens"));
    }

    #[test]
    fn vllm_words_are_understood() {
        let sampling = sampling(
            r#"{"top_k": -1, "priority": -5, "seed": -1, "stop": "x", "logit_bias": {"5": -100},
                "max_tokens": 9, "max_completion_tokens": 7, "ignore_eos": true}"#,
        )
        .unwrap();
        assert_eq!(sampling.top_k, 0);
        assert_eq!(sampling.priority, Priority::High);
        assert_eq!(sampling.seed, Some(u64::MAX));
        assert_eq!(sampling.stop, ["x"]);
        assert_eq!(sampling.logit_bias, BTreeMap::from([(5, -100.0)]));
        assert_eq!(sampling.max_tokens, Some(7));
        assert!(sampling.ignore_eos);
    }

    #[test]
    fn speculation_is_steered_by_name_and_number() {
        let steered = |text: &str| {
            let sampling = sampling(&format!(r#"{{"speculative": {text}}}"#)).unwrap();
            (sampling.speculative_drafter, sampling.speculative_depth)
        };
        assert_eq!(steered("{}"), (Drafter::Auto, None));
        assert_eq!(steered(r#"{"drafter": "off"}"#), (Drafter::Off, None));
        assert_eq!(
            steered(r#"{"drafter": "ngram", "depth": 3}"#),
            (Drafter::Ngram, Some(3))
        );
        let error = sampling(r#"{"speculative": {"drafter": "oracle"}}"#).unwrap_err();
        assert!(error.to_string().contains("ngram"), "{error}");
    }
}
