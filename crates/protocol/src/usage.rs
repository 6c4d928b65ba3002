//! What an answer cost.

use serde::{Serialize, Serializer, ser::SerializeStruct};

/// Tokens read and written for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens of all prompts.
    pub prompt_tokens: usize,
    /// Tokens of all answers.
    pub completion_tokens: usize,
    /// Prompt tokens that came out of the prefix cache.
    pub cached_tokens: usize,
    /// How speculation did, if that was asked for.
    pub drafts: Option<DraftUsage>,
}

/// What became of tokens that were drafted ahead, under OpenAI's names for predicted outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct DraftUsage {
    /// Drafted tokens that became text.
    #[serde(rename = "accepted_prediction_tokens")]
    pub accepted: usize,
    /// Drafted tokens that did not. Unlike OpenAI's they are not part of the completion.
    #[serde(rename = "rejected_prediction_tokens")]
    pub rejected: usize,
}

impl Serialize for Usage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct PromptDetails {
            cached_tokens: usize,
        }
        let mut usage =
            serializer.serialize_struct("Usage", 4 + usize::from(self.drafts.is_some()))?;
        usage.serialize_field("prompt_tokens", &self.prompt_tokens)?;
        usage.serialize_field("completion_tokens", &self.completion_tokens)?;
        usage.serialize_field(
            "total_tokens",
            &self.prompt_tokens.saturating_add(self.completion_tokens),
        )?;
        usage.serialize_field(
            "prompt_tokens_details",
            &PromptDetails {
                cached_tokens: self.cached_tokens,
            },
        )?;
        if let Some(drafts) = &self.drafts {
            usage.serialize_field("completion_tokens_details", drafts)?;
        }
        usage.end()
    }
}
