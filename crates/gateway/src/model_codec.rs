//! The language of a loaded model.

use std::sync::Arc;
use std::time::SystemTime;

use model::{ChatTemplate, Specials, Tokenizer};
use protocol::chat::Conversation;
use serde_json::Value;

use crate::worker::{Codec, JsonChat};

/// A model's tokenizer and chat template.
pub struct ModelCodec {
    tokenizer: Arc<Tokenizer>,
    template: Option<ChatTemplate>,
}

impl ModelCodec {
    /// A model without a template answers completions only.
    pub fn new(tokenizer: Arc<Tokenizer>, template: Option<ChatTemplate>) -> Self {
        tokenizer.make_ready();
        Self {
            tokenizer,
            template,
        }
    }
}

impl Codec for ModelCodec {
    fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, String> {
        let specials = Specials {
            parse: true,
            add: add_special_tokens,
        };
        self.tokenizer
            .encode(text, specials)
            .map_err(|error| error.to_string())
    }

    fn decode(&self, tokens: &[u32]) -> Result<String, String> {
        if let Some(unknown) = tokens
            .iter()
            .find(|&&id| self.tokenizer.token_bytes(id).is_none())
        {
            return Err(format!(
                "token id {unknown} is outside the vocabulary of {} tokens",
                self.vocab_size()
            ));
        }
        Ok(self.tokenizer.decode(tokens, false))
    }

    fn token_bytes(&self, token: u32) -> Option<&[u8]> {
        self.tokenizer.token_bytes(token)
    }

    fn vocab_size(&self) -> usize {
        self.tokenizer.vocab_size()
    }

    fn render(&self, conversation: &Conversation) -> Result<String, String> {
        let messages: Vec<Value> = conversation
            .messages
            .iter()
            .map(serde_json::to_value)
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        self.render_json(&JsonChat {
            messages: &messages,
            tools: None,
            add_generation_prompt: conversation.add_generation_prompt,
            continue_final_message: conversation.continue_final_message,
            template_arguments: Some(&conversation.template_arguments),
        })
    }

    fn render_json(&self, chat: &JsonChat<'_>) -> Result<String, String> {
        let template = self.template.as_ref().ok_or(
            "this model has no chat template; use /v1/completions, or start the server with \
             --chat-template",
        )?;
        let prompt = template
            .render(&model::Conversation {
                messages: chat.messages,
                tools: chat.tools,
                add_generation_prompt: chat.add_generation_prompt,
                arguments: chat.template_arguments,
                now: SystemTime::now(),
            })
            .map_err(|error| error.to_string())?;
        if chat.continue_final_message {
            let last = chat.messages.last();
            let content = last.and_then(|message| message.get("content")?.as_str());
            return leave_open(prompt, content.unwrap_or_default());
        }
        Ok(prompt)
    }

    fn seams(&self, prompt: &str) -> Vec<usize> {
        self.tokenizer.seams(prompt).collect()
    }
}

/// Cuts what the template wrote after the last message, so that the model goes on with it.
fn leave_open(mut prompt: String, last: &str) -> Result<String, String> {
    let last = last.trim();
    if last.is_empty() {
        return Err("continue_final_message needs a last message with content".to_owned());
    }
    let end = prompt.rfind(last).map(|start| start + last.len()).ok_or(
        "continue_final_message cannot be used: the chat template does not show the last message as \
         it is",
    )?;
    prompt.truncate(end);
    Ok(prompt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continued_message_is_left_open() {
        let open = leave_open("[u]one[a]one, two</s>".to_owned(), "one, two ");
        assert_eq!(open.as_deref(), Ok("[u]one[a]one, two"));
        assert!(leave_open("[u]one[a]</s>".to_owned(), "one, two").is_err());
        assert!(leave_open("[u]one".to_owned(), " ").is_err());
    }
}
