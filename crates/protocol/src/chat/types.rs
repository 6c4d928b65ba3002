//! A chat as a client sent it.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::fields::Fields;
use crate::sampling::SamplingFields;
use crate::stream::StreamOptions;
use crate::unsupported::refuse_unsupported;

/// A request whose fields have the right types but are otherwise unchecked.
#[derive(Debug, Clone)]
pub struct ChatRequest {
    pub(crate) model: Option<String>,
    pub(crate) conversation: ConversationFields,
    pub(crate) sampling: SamplingFields,
    pub(crate) logprobs: bool,
    pub(crate) top_logprobs: Option<usize>,
    pub(crate) stream: Option<StreamOptions>,
    pub(crate) return_token_ids: bool,
    pub(crate) echo: bool,
}

/// Messages and how they become a prompt; `/tokenize` takes the same.
#[derive(Debug, Clone)]
pub(crate) struct ConversationFields {
    pub(crate) messages: Vec<RawMessage>,
    pub(crate) add_generation_prompt: bool,
    pub(crate) continue_final_message: bool,
    pub(crate) chat_template_kwargs: Map<String, Value>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RawMessage {
    pub(crate) role: String,
    pub(crate) content: Option<Content>,
    pub(crate) name: Option<String>,
    pub(crate) tool_calls: Option<Value>,
    pub(crate) tool_call_id: Option<String>,
    pub(crate) reasoning_content: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "content must be a string or a list of parts")]
pub(crate) enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Part {
    pub(crate) r#type: String,
    pub(crate) text: Option<String>,
}

impl ChatRequest {
    /// Reads a body.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let fields = Fields::parse(body)?;
        refuse_unsupported(&fields)?;
        Ok(Self {
            model: fields.optional("model")?,
            conversation: ConversationFields::read(&fields)?,
            sampling: SamplingFields::read(&fields)?,
            logprobs: fields.or("logprobs", false)?,
            top_logprobs: fields.optional("top_logprobs")?,
            stream: StreamOptions::read(&fields)?,
            return_token_ids: fields.or("return_token_ids", false)?,
            echo: fields.or("echo", false)?,
        })
    }
}

impl ConversationFields {
    pub(crate) fn read(fields: &Fields<'_>) -> Result<Self, ApiError> {
        let continue_final_message = fields.or("continue_final_message", false)?;
        Ok(Self {
            messages: fields.required("messages")?,
            add_generation_prompt: fields.or("add_generation_prompt", true)?,
            continue_final_message,
            chat_template_kwargs: fields.or("chat_template_kwargs", Map::new())?,
        })
    }
}
