//! Text becomes tokens.

use std::sync::Arc;

use engine::{Priority, Sampling};
use protocol::ApiError;
use protocol::chat::Conversation;
use protocol::completions::Prompt;

use super::validate::{Input, Shape, Validated};
use crate::gateway::Gateway;
use crate::worker::Codec;

/// Text up to this size is tokenised where it stands, in well under a millisecond; more goes to a
/// blocking thread, because the runtime's few workers also carry everybody else's streams.
const INLINE_BYTES: usize = 8 << 10;

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

pub(crate) async fn tokenize(gateway: &Gateway, request: Validated) -> Result<Tokenized, ApiError> {
    let codec = &gateway.model.codec;
    let prompts = match request.input {
        Input::Chat(conversation) => {
            let tokens = render_conversation(codec, conversation, false).await?;
            vec![TokenizedPrompt {
                tokens,
                echo: String::new(),
            }]
        }
        Input::Prompts {
            prompts,
            add_special_tokens,
        } => {
            let mut tokenized = Vec::with_capacity(prompts.len());
            for prompt in prompts {
                let (tokens, text) = match prompt {
                    Prompt::Text(text) => encode_text(codec, text, add_special_tokens).await?,
                    Prompt::Tokens(tokens) => {
                        let echo = request.shape.echo;
                        let text = if echo {
                            decode(codec, &tokens)?
                        } else {
                            String::new()
                        };
                        (tokens, text)
                    }
                };
                let echo = if request.shape.echo {
                    text
                } else {
                    String::new()
                };
                tokenized.push(TokenizedPrompt { tokens, echo });
            }
            tokenized
        }
    };
    Ok(Tokenized {
        id: request.id,
        prompts,
        sampling: request.sampling,
        priority: request.priority,
        cache_salt: request.cache_salt,
        shape: request.shape,
    })
}

/// Tokens of a chat, through the model's template, which writes its own special tokens.
pub(crate) async fn render_conversation(
    codec: &Arc<dyn Codec>,
    conversation: Conversation,
    add_special_tokens: bool,
) -> Result<Vec<u32>, ApiError> {
    let bytes = conversation
        .messages
        .iter()
        .map(|message| message.content.as_ref().map_or(0, String::len))
        .sum();
    run_near(codec, bytes, move |codec| {
        let prompt = codec
            .render(&conversation)
            .map_err(|reason| ApiError::invalid("messages", reason))?;
        codec
            .encode(&prompt, add_special_tokens)
            .map_err(|reason| ApiError::invalid("messages", reason))
    })
    .await
}

/// Tokens of a text, and the text back.
pub(crate) async fn encode_text(
    codec: &Arc<dyn Codec>,
    text: String,
    add_special_tokens: bool,
) -> Result<(Vec<u32>, String), ApiError> {
    run_near(codec, text.len(), move |codec| {
        codec
            .encode(&text, add_special_tokens)
            .map(|tokens| (tokens, text))
            .map_err(|reason| ApiError::invalid("prompt", reason))
    })
    .await
}

fn decode(codec: &Arc<dyn Codec>, tokens: &[u32]) -> Result<String, ApiError> {
    codec
        .decode(tokens)
        .map_err(|reason| ApiError::invalid("prompt", reason))
}

/// Runs `work` here if it handles few `bytes`, on a blocking thread otherwise.
async fn run_near<T: Send + 'static>(
    codec: &Arc<dyn Codec>,
    bytes: usize,
    work: impl FnOnce(&dyn Codec) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    if bytes <= INLINE_BYTES {
        return work(codec.as_ref());
    }
    let codec = Arc::clone(codec);
    tokio::task::spawn_blocking(move || work(codec.as_ref()))
        .await
        .unwrap_or_else(|_| {
            Err(ApiError::new(
                protocol::ErrorKind::Internal,
                "tokenising the prompt failed",
            ))
        })
}
