//! Why an answer ended.

use serde::Serialize;

/// OpenAI's word for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FinishReason {
    /// The model's end of text, a stop string or a stop token.
    Stop,
    /// `max_tokens` or the model's length.
    Length,
}

impl FinishReason {
    /// The word as it is sent.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// Which stop string or token matched (vLLM's `stop_reason`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum StopReason {
    /// A stop string.
    Text(String),
    /// A stop token.
    Token(u32),
}

/// The end of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finish {
    /// Why.
    pub reason: FinishReason,
    /// What matched.
    pub stop: Option<StopReason>,
}
