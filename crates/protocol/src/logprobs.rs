//! Log-probabilities in the three shapes that clients know: chat, completions, and vLLM's for prompts.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

/// JSON has no infinity; vLLM sends this instead, and so do we.
const LOWEST: f32 = -9999.0;

fn finite<S: Serializer>(logprob: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f32(logprob.max(LOWEST))
}

/// A token as chat shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatLogprob {
    /// Its text, with replacement characters where it is not whole.
    pub token: String,
    /// Its log-probability.
    #[serde(serialize_with = "finite")]
    pub logprob: f32,
    /// Its very bytes, so that a character spread over tokens can be put together.
    pub bytes: Vec<u8>,
    /// The best tokens at this place, best first.
    pub top_logprobs: Vec<Alternative>,
}

/// One of the best tokens at a place.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alternative {
    /// Its text.
    pub token: String,
    /// Its log-probability.
    #[serde(serialize_with = "finite")]
    pub logprob: f32,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// `choices[].logprobs` of chat.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub struct ChatLogprobs {
    /// One per token.
    pub content: Vec<ChatLogprob>,
}

/// `choices[].logprobs` of completions: parallel lists with one entry per token.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub struct CompletionLogprobs {
    /// Texts.
    pub tokens: Vec<String>,
    /// Log-probabilities; `null` for the first token of an echoed prompt.
    pub token_logprobs: Vec<Option<f32>>,
    /// The best tokens at each place.
    pub top_logprobs: Vec<Option<BestTokens>>,
    /// Where each token starts in the text, in characters.
    pub text_offset: Vec<usize>,
}

impl CompletionLogprobs {
    /// Adds a token.
    pub fn push(
        &mut self,
        token: String,
        offset: usize,
        logprob: Option<f32>,
        best: Option<BestTokens>,
    ) {
        self.tokens.push(token);
        self.token_logprobs
            .push(logprob.map(|logprob| logprob.max(LOWEST)));
        self.top_logprobs.push(best);
        self.text_offset.push(offset);
    }
}

/// The best tokens at a place, as a JSON object in this order. Texts are unique.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BestTokens(Vec<(String, f32)>);

impl BestTokens {
    /// Adds a token unless a better one has the same text.
    pub fn push(&mut self, token: String, logprob: f32) {
        if self.0.iter().all(|(other, _)| *other != token) {
            self.0.push((token, logprob.max(LOWEST)));
        }
    }
}

impl Serialize for BestTokens {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(token, logprob)| (token, logprob)))
    }
}

/// vLLM's `prompt_logprobs`: for each prompt token the token itself and the best, by id; `null` first.
pub type PromptLogprobs = Vec<Option<BTreeMap<u32, PromptLogprob>>>;

/// One token at one place of a prompt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PromptLogprob {
    /// Its log-probability.
    #[serde(serialize_with = "finite")]
    pub logprob: f32,
    /// Its place among all tokens; 1 is the best.
    pub rank: usize,
    /// Its text.
    pub decoded_token: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_tokens_keep_their_order_and_infinity_is_sent_as_a_number() {
        let mut best = BestTokens::default();
        best.push("b".into(), -0.5);
        best.push("a".into(), -1.0);
        best.push("b".into(), -7.0);
        best.push("c".into(), f32::NEG_INFINITY);
        assert_eq!(
            serde_json::to_string(&best).unwrap(),
            r#"{"b":-0.5,"a":-1.0,"c":-9999.0}"#
        );
    }
}
