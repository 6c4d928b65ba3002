//! What is asked and what is answered.

use serde::Serialize;

use crate::chat::ConversationFields;
use crate::error::ApiError;
use crate::fields::Fields;

/// A text or a chat to be tokenised.
#[derive(Debug, Clone)]
pub struct TokenizeRequest {
    pub(crate) model: Option<String>,
    pub(crate) prompt: Option<String>,
    pub(crate) conversation: Option<ConversationFields>,
    pub(crate) add_special_tokens: Option<bool>,
    pub(crate) return_token_strs: bool,
}

impl TokenizeRequest {
    /// Reads a body.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let fields = Fields::parse(body)?;
        let has_messages = fields.raw("messages").is_some();
        Ok(Self {
            model: fields.optional("model")?,
            prompt: fields.optional("prompt")?,
            conversation: has_messages
                .then(|| ConversationFields::read(&fields))
                .transpose()?,
            add_special_tokens: fields.optional("add_special_tokens")?,
            return_token_strs: fields.or("return_token_strs", false)?,
        })
    }
}

/// The tokens.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TokenizeAnswer {
    /// How many.
    pub count: usize,
    /// How many the model can take.
    pub max_model_len: usize,
    /// Their ids.
    pub tokens: Vec<u32>,
    /// Their texts, when asked for.
    pub token_strs: Option<Vec<String>>,
}

/// Token ids to be turned into text. Any list within the body's bound is valid.
#[derive(Debug, Clone, PartialEq)]
pub struct DetokenizeRequest {
    /// The model asked for; `None` is the one that is served.
    pub model: Option<String>,
    /// The ids.
    pub tokens: Vec<u32>,
}

impl DetokenizeRequest {
    /// Reads a body.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let fields = Fields::parse(body)?;
        Ok(Self {
            model: fields.optional("model")?,
            tokens: fields.required("tokens")?,
        })
    }
}

/// The text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DetokenizeAnswer {
    /// It may hold replacement characters where tokens end inside a character.
    pub prompt: String,
}
