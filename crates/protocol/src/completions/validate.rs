//! The bounds of a completion, and the type of what is within them.

use super::prompt::Prompt;
use super::types::CompletionRequest;
use crate::error::ApiError;
use crate::limits;
use crate::sampling::{Sampling, top_logprobs};
use crate::stream::StreamOptions;

/// OpenAI's length of a completion when none is asked for.
const DEFAULT_MAX_TOKENS: usize = 16;

/// A completion within all bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidCompletion {
    /// The model asked for; `None` is the one that is served.
    pub model: Option<String>,
    /// Never empty, and none of them is.
    pub prompts: Vec<Prompt>,
    /// How each is continued.
    pub sampling: Sampling,
    /// Log-probabilities, with so many alternatives.
    pub logprobs: Option<usize>,
    /// Whether the prompt stands before its continuation.
    pub echo: bool,
    /// `None`: the answer is wanted in one piece.
    pub stream: Option<StreamOptions>,
    /// Whether token ids come with the text.
    pub return_token_ids: bool,
    /// Whether a text prompt gets the model's begin-of-text token.
    pub add_special_tokens: bool,
}

impl CompletionRequest {
    /// Checks every bound.
    pub fn validate(self) -> Result<ValidCompletion, ApiError> {
        let prompts = self.prompts.0;
        if prompts.is_empty() {
            return Err(ApiError::invalid(
                "prompt",
                "prompt is empty; send at least one",
            ));
        }
        if prompts.len() > limits::MAX_PROMPTS {
            return Err(ApiError::invalid(
                "prompt",
                format!(
                    "there are {} prompts; send at most {}",
                    prompts.len(),
                    limits::MAX_PROMPTS
                ),
            ));
        }
        if prompts.contains(&Prompt::Tokens(Vec::new())) {
            return Err(ApiError::invalid(
                "prompt",
                "a list of token ids must not be empty",
            ));
        }
        // Nothing but the prompt and its log-probabilities is a sensible answer only where it is shown.
        let fewest_tokens = if self.echo { 0 } else { 1 };
        let mut sampling = self.sampling.validate_with(fewest_tokens)?;
        sampling
            .max_tokens
            .get_or_insert(DEFAULT_MAX_TOKENS.max(sampling.min_tokens));
        let choices = prompts.len().saturating_mul(sampling.n);
        if choices > limits::MAX_CHOICES {
            return Err(ApiError::invalid(
                "n",
                format!(
                    "{} prompts with {} answers each are {choices} answers; ask for at most {}",
                    prompts.len(),
                    sampling.n,
                    limits::MAX_CHOICES
                ),
            ));
        }
        if self.stream.is_some() && sampling.prompt_logprobs.is_some() {
            return Err(ApiError::invalid(
                "prompt_logprobs",
                "prompt_logprobs cannot be streamed; set stream to false",
            ));
        }
        Ok(ValidCompletion {
            model: self.model,
            prompts,
            sampling,
            logprobs: top_logprobs("logprobs", self.logprobs)?,
            echo: self.echo,
            stream: self.stream,
            return_token_ids: self.return_token_ids,
            add_special_tokens: self.add_special_tokens,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn completion(body: &Value) -> Result<ValidCompletion, ApiError> {
        CompletionRequest::parse(body.to_string().as_bytes())?.validate()
    }

    #[test]
    fn sixteen_tokens_are_the_default() {
        let default = completion(&json!({"prompt": "a"})).unwrap();
        assert_eq!(default.sampling.max_tokens, Some(16));
        let asked = completion(&json!({"prompt": "a", "max_tokens": 3, "logprobs": 0})).unwrap();
        assert_eq!(asked.sampling.max_tokens, Some(3));
        assert_eq!(asked.logprobs, Some(0));
    }

    #[test]
    fn no_tokens_at_all_may_be_asked_for_with_an_echo_only() {
        let echoed = json!({"prompt": "a", "echo": true, "max_tokens": 0});
        assert_eq!(completion(&echoed).unwrap().sampling.max_tokens, Some(0));
        let error = completion(&json!({"prompt": "a", "max_tokens": 0})).unwrap_err();
        assert_eq!(error.param(), Some("max_tokens"));
        let contradiction = json!({"prompt": "a", "echo": true, "max_tokens": 0, "min_tokens": 1});
        assert_eq!(
            completion(&contradiction).unwrap_err().param(),
            Some("min_tokens")
        );
    }

    #[test]
    fn every_mistake_names_its_field() {
        for (param, body) in [
            ("prompt", json!({})),
            ("prompt", json!({"prompt": []})),
            ("prompt", json!({"prompt": [[]]})),
            (
                "prompt",
                json!({"prompt": vec!["x"; limits::MAX_PROMPTS + 1]}),
            ),
            ("n", json!({"prompt": vec!["x"; 5], "n": 128})),
            ("logprobs", json!({"prompt": "x", "logprobs": 21})),
            ("logprobs", json!({"prompt": "x", "logprobs": true})),
            (
                "prompt_logprobs",
                json!({"prompt": "x", "stream": true, "prompt_logprobs": 1}),
            ),
            ("suffix", json!({"prompt": "x", "suffix": "y"})),
        ] {
            assert_eq!(
                completion(&body).unwrap_err().param(),
                Some(param),
                "{body}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_damaged_request_never_panics(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut body = json!({"prompt": [[1, 2], [3]], "n": 2, "logprobs": 5, "echo": true})
                .to_string()
                .into_bytes();
            let at = at.index(body.len());
            body[at] = byte;
            let _ = CompletionRequest::parse(&body).and_then(CompletionRequest::validate);
        }
    }
}
