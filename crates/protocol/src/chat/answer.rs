//! An answer in one piece.

use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::finish::Finish;
use crate::logprobs::{ChatLogprobs, PromptLogprobs};
use crate::usage::Usage;

/// The body of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatAnswer<'a> {
    /// Its name.
    pub id: &'a str,
    /// Seconds since the Unix epoch.
    pub created: u64,
    /// The model that answered.
    pub model: &'a str,
    /// One per answer.
    pub choices: Vec<ChatChoice>,
    /// What it cost.
    pub usage: Usage,
    /// When asked for.
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// When asked for.
    pub prompt_token_ids: Option<Vec<u32>>,
}

/// One of the answers.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatChoice {
    /// Which.
    pub index: usize,
    /// Its text.
    pub text: String,
    /// When asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// Its end.
    pub finish: Finish,
    /// When asked for.
    pub token_ids: Option<Vec<u32>>,
}

impl Serialize for ChatAnswer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut answer = serializer.serialize_struct("ChatAnswer", 8)?;
        answer.serialize_field("id", self.id)?;
        answer.serialize_field("object", "chat.completion")?;
        answer.serialize_field("created", &self.created)?;
        answer.serialize_field("model", self.model)?;
        answer.serialize_field("choices", &self.choices)?;
        answer.serialize_field("usage", &self.usage)?;
        if let Some(logprobs) = &self.prompt_logprobs {
            answer.serialize_field("prompt_logprobs", logprobs)?;
        }
        if let Some(ids) = &self.prompt_token_ids {
            answer.serialize_field("prompt_token_ids", ids)?;
        }
        answer.end()
    }
}

impl Serialize for ChatChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Message<'a> {
            role: &'a str,
            content: &'a str,
            refusal: Option<&'a str>,
        }
        let mut choice = serializer.serialize_struct("ChatChoice", 6)?;
        choice.serialize_field("index", &self.index)?;
        choice.serialize_field(
            "message",
            &Message {
                role: "assistant",
                content: &self.text,
                refusal: None,
            },
        )?;
        choice.serialize_field("logprobs", &self.logprobs)?;
        choice.serialize_field("finish_reason", &self.finish.reason)?;
        choice.serialize_field("stop_reason", &self.finish.stop)?;
        if let Some(ids) = &self.token_ids {
            choice.serialize_field("token_ids", ids)?;
        }
        choice.end()
    }
}
