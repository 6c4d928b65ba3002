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
}

impl Serialize for Usage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct PromptDetails {
            cached_tokens: usize,
        }
        let mut usage = serializer.serialize_struct("Usage", 4)?;
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
        usage.end()
    }
}
