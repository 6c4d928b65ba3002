//! Either a text or a chat, not both.

use super::types::TokenizeRequest;
use crate::chat::Conversation;
use crate::error::ApiError;

/// What is tokenised.
#[derive(Debug, Clone, PartialEq)]
pub enum TokenizeInput {
    /// A text.
    Text(String),
    /// A chat, through the model's template.
    Chat(Conversation),
}

/// A request within all bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidTokenize {
    /// The model asked for; `None` is the one that is served.
    pub model: Option<String>,
    /// What is tokenised.
    pub input: TokenizeInput,
    /// Whether the model's begin-of-text token is added. A chat's template brings its own.
    pub add_special_tokens: bool,
    /// Whether the texts of the tokens come with their ids.
    pub return_token_strs: bool,
}

impl TokenizeRequest {
    /// Checks every bound.
    pub fn validate(self) -> Result<ValidTokenize, ApiError> {
        let (input, adds_by_default) = match (self.prompt, self.conversation) {
            (Some(text), None) => (TokenizeInput::Text(text), true),
            (None, Some(conversation)) => (TokenizeInput::Chat(conversation.validate()?), false),
            (None, None) => return Err(ApiError::invalid("prompt", "send prompt or messages")),
            (Some(_), Some(_)) => {
                return Err(ApiError::invalid(
                    "prompt",
                    "send either prompt or messages, not both",
                ));
            }
        };
        Ok(ValidTokenize {
            model: self.model,
            input,
            add_special_tokens: self.add_special_tokens.unwrap_or(adds_by_default),
            return_token_strs: self.return_token_strs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenize(body: &str) -> Result<ValidTokenize, ApiError> {
        TokenizeRequest::parse(body.as_bytes())?.validate()
    }

    #[test]
    fn a_text_gets_special_tokens_and_a_chat_does_not() {
        assert!(tokenize(r#"{"prompt": "a"}"#).unwrap().add_special_tokens);
        let chat = tokenize(r#"{"messages": [{"role": "user", "content": "a"}]}"#).unwrap();
        assert!(!chat.add_special_tokens);
    }

    #[test]
    fn nothing_and_both_are_refused() {
        for body in [
            "{}",
            r#"{"prompt": "a", "messages": [{"role": "user", "content": "a"}]}"#,
        ] {
            assert_eq!(tokenize(body).unwrap_err().param(), Some("prompt"));
        }
    }
}
