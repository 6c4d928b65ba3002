//! An answer in one piece.

use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::finish::Finish;
use crate::logprobs::{CompletionLogprobs, PromptLogprobs};
use crate::usage::Usage;

/// The body of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionAnswer<'a> {
    /// Its name.
    pub id: &'a str,
    /// Seconds since the Unix epoch.
    pub created: u64,
    /// The model that answered.
    pub model: &'a str,
    /// `n` per prompt, prompt by prompt.
    pub choices: Vec<CompletionChoice>,
    /// What it cost.
    pub usage: Usage,
}

/// One of the answers.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionChoice {
    /// Which.
    pub index: usize,
    /// Its text, after the prompt's if that was asked for.
    pub text: String,
    /// When asked for.
    pub logprobs: Option<CompletionLogprobs>,
    /// Its end.
    pub finish: Finish,
    /// When asked for.
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// When asked for: the prompt's and the answer's.
    pub token_ids: Option<(Vec<u32>, Vec<u32>)>,
}

impl Serialize for CompletionAnswer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut answer = serializer.serialize_struct("CompletionAnswer", 6)?;
        answer.serialize_field("id", self.id)?;
        answer.serialize_field("object", "text_completion")?;
        answer.serialize_field("created", &self.created)?;
        answer.serialize_field("model", self.model)?;
        answer.serialize_field("choices", &self.choices)?;
        answer.serialize_field("usage", &self.usage)?;
        answer.end()
    }
}

impl Serialize for CompletionChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut choice = serializer.serialize_struct("CompletionChoice", 8)?;
        choice.serialize_field("index", &self.index)?;
        choice.serialize_field("text", &self.text)?;
        choice.serialize_field("logprobs", &self.logprobs)?;
        choice.serialize_field("finish_reason", &self.finish.reason)?;
        choice.serialize_field("stop_reason", &self.finish.stop)?;
        if let Some(logprobs) = &self.prompt_logprobs {
            choice.serialize_field("prompt_logprobs", logprobs)?;
        }
        if let Some((prompt, answer)) = &self.token_ids {
            choice.serialize_field("prompt_token_ids", prompt)?;
            choice.serialize_field("token_ids", answer)?;
        }
        choice.end()
    }
}
