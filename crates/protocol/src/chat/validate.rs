//! The bounds of a chat, and the type of what is within them.

use super::conversation::Conversation;
use super::types::ChatRequest;
use crate::error::ApiError;
use crate::sampling::{Sampling, top_logprobs};
use crate::stream::StreamOptions;

/// A chat within all bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidChat {
    /// The model asked for; `None` is the one that is served.
    pub model: Option<String>,
    /// What is answered.
    pub conversation: Conversation,
    /// How.
    pub sampling: Sampling,
    /// Log-probabilities of the answer's tokens, with so many alternatives.
    pub logprobs: Option<usize>,
    /// `None`: the answer is wanted in one piece.
    pub stream: Option<StreamOptions>,
    /// Whether token ids come with the text.
    pub return_token_ids: bool,
}

impl ChatRequest {
    /// Checks every bound.
    pub fn validate(self) -> Result<ValidChat, ApiError> {
        if self.echo {
            return Err(ApiError::invalid(
                "echo",
                "echo is not supported for chats; use /v1/completions",
            ));
        }
        let top = top_logprobs("top_logprobs", self.top_logprobs)?;
        if top.is_some_and(|top| top > 0) && !self.logprobs {
            return Err(ApiError::invalid(
                "top_logprobs",
                "top_logprobs needs logprobs to be true",
            ));
        }
        let sampling = self.sampling.validate()?;
        if self.stream.is_some() && sampling.prompt_logprobs.is_some() {
            return Err(ApiError::invalid(
                "prompt_logprobs",
                "prompt_logprobs cannot be streamed; set stream to false",
            ));
        }
        Ok(ValidChat {
            model: self.model,
            conversation: self.conversation.validate()?,
            sampling,
            logprobs: self.logprobs.then(|| top.unwrap_or(0)),
            stream: self.stream,
            return_token_ids: self.return_token_ids,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn chat(body: &Value) -> Result<ValidChat, ApiError> {
        ChatRequest::parse(body.to_string().as_bytes())?.validate()
    }

    fn hello() -> Value {
        json!([{"role": "user", "content": "hello"}])
    }

    #[test]
    fn a_plain_chat_passes() {
        let chat = chat(&json!({"model": "m", "messages": hello(), "user": "me"})).unwrap();
        assert_eq!(chat.model.as_deref(), Some("m"));
        assert!(chat.conversation.add_generation_prompt);
        assert_eq!(chat.logprobs, None);
        assert_eq!(chat.stream, None);
    }

    #[test]
    fn parts_are_joined_and_developers_are_the_system() {
        let chat = chat(&json!({"messages": [
            {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "x"}]},
            {"role": "tool", "content": "4", "tool_call_id": "x"},
        ]}))
        .unwrap();
        let messages = serde_json::to_value(&chat.conversation.messages).unwrap();
        assert_eq!(
            messages,
            json!([
                {"role": "system", "content": "a\nb"},
                {"role": "assistant", "content": null, "tool_calls": [{"id": "x"}]},
                {"role": "tool", "content": "4", "tool_call_id": "x"},
            ])
        );
    }

    #[test]
    fn continuing_a_message_opens_no_new_one() {
        let chat = chat(&json!({"messages": hello(), "continue_final_message": true})).unwrap();
        assert!(chat.conversation.continue_final_message);
        assert!(!chat.conversation.add_generation_prompt);
    }

    #[test]
    fn every_mistake_names_its_field() {
        for (param, body) in [
            ("messages", json!({})),
            ("messages", json!({"messages": []})),
            ("messages", json!({"messages": "hi"})),
            ("messages", json!({"messages": [{"content": "no role"}]})),
            (
                "messages[0].role",
                json!({"messages": [{"role": "robot", "content": ""}]}),
            ),
            (
                "messages[0].content",
                json!({"messages": [{"role": "user"}]}),
            ),
            (
                "messages[0].content",
                json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}),
            ),
            (
                "top_logprobs",
                json!({"messages": hello(), "top_logprobs": 3}),
            ),
            (
                "top_logprobs",
                json!({"messages": hello(), "logprobs": true, "top_logprobs": 21}),
            ),
            (
                "stream_options",
                json!({"messages": hello(), "stream_options": {"include_usage": true}}),
            ),
            (
                "prompt_logprobs",
                json!({"messages": hello(), "stream": true, "prompt_logprobs": 1}),
            ),
            ("echo", json!({"messages": hello(), "echo": true})),
            (
                "chat_template_kwargs",
                json!({"messages": hello(), "chat_template_kwargs": []}),
            ),
        ] {
            assert_eq!(chat(&body).unwrap_err().param(), Some(param), "{body}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = ChatRequest::parse(&bytes).and_then(ChatRequest::validate);
        }

        #[test]
        fn a_damaged_request_never_panics(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut body = json!({
                "messages": [{"role": "user", "content": [{"type": "text", "text": "é😀"}]}],
                "stream": true, "stream_options": {"include_usage": true}, "stop": ["a"],
                "logit_bias": {"1": 2}, "response_format": {"type": "json_object"}, "top_k": -1,
            })
            .to_string()
            .into_bytes();
            let at = at.index(body.len());
            body[at] = byte;
            let _ = ChatRequest::parse(&body).and_then(ChatRequest::validate);
        }
    }
}
