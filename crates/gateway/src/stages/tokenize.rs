//! Text becomes tokens.

use std::sync::Arc;

use engine::{Priority, Sampling};
use protocol::ApiError;
use protocol::chat::Conversation;
use protocol::completions::Prompt;

use super::validate::{Input, Shape, Validated};
use crate::gateway::Embedded;
use crate::near::run_near;
use crate::worker::Codec;

/// A request whose prompts are tokens.
pub(crate) struct Tokenized {
    pub(crate) id: Arc<str>,
    /// Never empty.
    pub(crate) prompts: Vec<TokenizedPrompt>,
    pub(crate) sampling: Sampling,
    pub(crate) priority: Priority,
    pub(crate) cache_salt: Option<Arc<str>>,
    pub(crate) shape: Shape,
}

pub(crate) struct TokenizedPrompt {
    pub(crate) tokens: Vec<u32>,
    /// What stands before the answer; empty unless the prompt is echoed.
    pub(crate) echo: String,
}

pub(crate) async fn tokenize(own: &Embedded, request: Validated) -> Result<Tokenized, ApiError> {
    let codec = Arc::clone(&own.model.codec);
    let echo = request.shape.echo;
    let prompts = run_near(text_bytes(&request.input), move || match request.input {
        Input::Chat(conversation) => {
            let tokens = encode_conversation(codec.as_ref(), &conversation, false)?;
            let echo = String::new();
            Ok(vec![TokenizedPrompt { tokens, echo }])
        }
        Input::Prompts {
            prompts,
            add_special_tokens,
        } => prompts
            .into_iter()
            .map(|prompt| encode_prompt(codec.as_ref(), prompt, add_special_tokens, echo))
            .collect(),
    })
    .await?;
    Ok(Tokenized {
        id: request.id,
        prompts,
        sampling: request.sampling,
        priority: request.priority,
        cache_salt: request.cache_salt,
        shape: request.shape,
    })
}

fn encode_prompt(
    codec: &dyn Codec,
    prompt: Prompt,
    add_special_tokens: bool,
    echo: bool,
) -> Result<TokenizedPrompt, ApiError> {
    match prompt {
        Prompt::Text(text) => Ok(TokenizedPrompt {
            tokens: encode_text(codec, &text, add_special_tokens)?,
            echo: if echo { text } else { String::new() },
        }),
        Prompt::Tokens(tokens) => {
            let echo = if echo {
                codec
                    .decode(&tokens)
                    .map_err(|reason| ApiError::invalid("prompt", reason))?
            } else {
                String::new()
            };
            Ok(TokenizedPrompt { tokens, echo })
        }
    }
}

/// Tokens of a chat, through the model's template, which writes its own special tokens.
pub(crate) fn encode_conversation(
    codec: &dyn Codec,
    conversation: &Conversation,
    add_special_tokens: bool,
) -> Result<Vec<u32>, ApiError> {
    codec
        .render(conversation)
        .and_then(|prompt| codec.encode(&prompt, add_special_tokens))
        .map_err(|reason| ApiError::invalid("messages", reason))
}

/// Tokens of a text.
pub(crate) fn encode_text(
    codec: &dyn Codec,
    text: &str,
    add_special_tokens: bool,
) -> Result<Vec<u32>, ApiError> {
    codec
        .encode(text, add_special_tokens)
        .map_err(|reason| ApiError::invalid("prompt", reason))
}

fn text_bytes(input: &Input) -> usize {
    match input {
        Input::Chat(conversation) => conversation
            .messages
            .iter()
            .map(|message| message.content.as_ref().map_or(0, String::len))
            .sum(),
        Input::Prompts { prompts, .. } => prompts
            .iter()
            .map(|prompt| match prompt {
                Prompt::Text(text) => text.len(),
                Prompt::Tokens(_) => 0,
            })
            .sum(),
    }
}
