//! Messages that a chat template can be given.

use serde::Serialize;
use serde_json::{Map, Value};

use super::types::{Content, ConversationFields, RawMessage};
use crate::error::ApiError;
use crate::limits;

/// A checked conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    /// Never empty.
    pub messages: Vec<Message>,
    /// Whether the prompt ends with the opening of an answer.
    pub add_generation_prompt: bool,
    /// Whether the last message is left open, for the model to continue. Excludes the other.
    pub continue_final_message: bool,
    /// Passed on to the template.
    pub template_arguments: Map<String, Value>,
}

/// One message. It serialises into what templates expect.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// Its text; several text parts are joined by line feeds.
    pub content: Option<String>,
    /// The speaker's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Calls in an assistant's earlier message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Value>,
    /// Which call a tool's message answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Reasoning in an assistant's earlier message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
}

impl ConversationFields {
    pub(crate) fn validate(self) -> Result<Conversation, ApiError> {
        if self.messages.is_empty() {
            return Err(ApiError::invalid(
                "messages",
                "messages is empty; send at least one message",
            ));
        }
        if self.messages.len() > limits::MAX_MESSAGES {
            return Err(ApiError::invalid(
                "messages",
                format!(
                    "there are {} messages; send at most {}",
                    self.messages.len(),
                    limits::MAX_MESSAGES
                ),
            ));
        }
        // Whoever continues a message cannot want a new one opened: vLLM asks its clients to say both.
        let add_generation_prompt = self.add_generation_prompt && !self.continue_final_message;
        if self.chat_template_kwargs.len() > limits::MAX_TEMPLATE_ARGUMENTS {
            return Err(ApiError::invalid(
                "chat_template_kwargs",
                format!(
                    "chat_template_kwargs must have at most {} entries",
                    limits::MAX_TEMPLATE_ARGUMENTS
                ),
            ));
        }
        let messages = self
            .messages
            .into_iter()
            .enumerate()
            .map(|(index, message)| message.validate(index))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Conversation {
            messages,
            add_generation_prompt,
            continue_final_message: self.continue_final_message,
            template_arguments: self.chat_template_kwargs,
        })
    }
}

impl RawMessage {
    fn validate(self, index: usize) -> Result<Message, ApiError> {
        let role = match self.role.as_str() {
            "system" | "user" | "assistant" | "tool" => self.role,
            // OpenAI's newer word for the same; templates know only the older one.
            "developer" => "system".to_owned(),
            other => {
                let shown: String = other.chars().take(limits::MAX_NAME_BYTES).collect();
                return Err(ApiError::invalid(
                    format!("messages[{index}].role"),
                    format!(
                        "role {shown:?} is unknown; use system, developer, user, assistant or tool"
                    ),
                ));
            }
        };
        let content = match self.content {
            Some(content) => Some(content.into_text(index)?),
            None if role == "assistant" => None,
            None => {
                return Err(ApiError::invalid(
                    format!("messages[{index}].content"),
                    format!("messages[{index}].content is missing"),
                ));
            }
        };
        Ok(Message {
            role,
            content,
            name: self.name,
            tool_calls: self.tool_calls,
            tool_call_id: self.tool_call_id,
            reasoning_content: self.reasoning_content,
        })
    }
}

impl Content {
    fn into_text(self, index: usize) -> Result<String, ApiError> {
        let parts = match self {
            Content::Text(text) => return Ok(text),
            Content::Parts(parts) => parts,
        };
        if parts.len() > limits::MAX_CONTENT_PARTS {
            return Err(ApiError::invalid(
                format!("messages[{index}].content"),
                format!(
                    "a message must have at most {} parts",
                    limits::MAX_CONTENT_PARTS
                ),
            ));
        }
        let mut texts = Vec::with_capacity(parts.len());
        for part in parts {
            match (part.r#type.as_str(), part.text) {
                ("text", Some(text)) => texts.push(text),
                ("text", None) => {
                    return Err(ApiError::invalid(
                        format!("messages[{index}].content"),
                        "a text part has no text",
                    ));
                }
                (other, _) => {
                    let shown: String = other.chars().take(limits::MAX_NAME_BYTES).collect();
                    return Err(ApiError::invalid(
                        format!("messages[{index}].content"),
                        format!("this model reads text only; leave the {shown:?} part out"),
                    ));
                }
            }
        }
        Ok(texts.join("\n"))
    }
}
