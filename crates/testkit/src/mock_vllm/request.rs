//! What a generating request asks for.

use serde::Deserialize;
use serde_json::Value;

use super::{Answer, MockConfig};

/// Tokens of an answer to `/v1/completions` that does not say (OpenAI's default).
const DEFAULT_COMPLETION_TOKENS: u64 = 16;

/// Which of the two routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Chat,
    Completion,
}

/// The fields that a mock looks at; it takes all others without a word, as vLLM does.
#[derive(Debug, Deserialize)]
struct Fields {
    model: Option<String>,
    messages: Option<Vec<Value>>,
    prompt: Option<Prompt>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    #[serde(default)]
    ignore_eos: bool,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
    cache_salt: Option<String>,
    #[serde(default)]
    continue_final_message: bool,
    #[serde(default)]
    return_token_ids: bool,
    n: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
}

/// A request that can be served.
pub(super) struct Asked {
    pub(super) kind: Kind,
    /// Of the prompt.
    pub(super) tokens: Vec<u32>,
    pub(super) answer: Answer,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) token_ids: bool,
    pub(super) salt: Option<String>,
}

/// A status and what to say with it.
pub(super) type Refusal = (u16, String);

impl Asked {
    pub(super) fn read(kind: Kind, body: &[u8], config: &MockConfig) -> Result<Self, Refusal> {
        let fields: Fields =
            serde_json::from_slice(body).map_err(|error| (400, error.to_string()))?;
        if let Some(model) = fields
            .model
            .as_ref()
            .filter(|model| **model != config.model)
        {
            return Err((404, format!("The model `{model}` does not exist.")));
        }
        if fields.n.is_some_and(|n| n != 1) {
            return Err((400, "the mock gives one choice".to_owned()));
        }
        let vocabulary = &config.vocabulary;
        let (tokens, content) = match (kind, fields.messages, fields.prompt) {
            (Kind::Chat, Some(messages), _) => {
                let text = vocabulary
                    .render(&messages, fields.continue_final_message)
                    .map_err(|error| (400, error))?;
                (vocabulary.encode_rendered(&text), text.into_bytes())
            }
            (Kind::Completion, _, Some(Prompt::Text(text))) => {
                (vocabulary.encode(&text), text.into_bytes())
            }
            (Kind::Completion, _, Some(Prompt::Tokens(tokens))) => {
                let content = vocabulary.bytes(&tokens);
                (tokens, content)
            }
            _ => return Err((400, "there is no prompt".to_owned())),
        };
        let room = config.max_model_len.saturating_sub(tokens.len() as u64);
        let most = fields.max_completion_tokens.or(fields.max_tokens);
        let most = match kind {
            Kind::Chat => most.unwrap_or(room),
            Kind::Completion => most.unwrap_or(DEFAULT_COMPLETION_TOKENS),
        };
        if tokens.is_empty() || most == 0 || most > room {
            return Err((
                400,
                format!(
                    "This model's maximum context length is {} tokens. However, your request has {} input tokens and asks for {most}.",
                    config.max_model_len,
                    tokens.len()
                ),
            ));
        }
        let mean = if fields.ignore_eos {
            0
        } else {
            config.mean_answer_tokens
        };
        Ok(Self {
            kind,
            answer: Answer::to(vocabulary, &content, most, mean),
            tokens,
            stream: fields.stream,
            include_usage: fields.stream_options.unwrap_or_default().include_usage,
            token_ids: fields.return_token_ids,
            salt: fields.cache_salt,
        })
    }

    /// Ids of the contents of its full blocks, those of the answer included: equal only where everything up to the
    /// block's end is equal, the salt too.
    pub(super) fn blocks(&self, block_tokens: usize) -> (Vec<u32>, Vec<u32>) {
        let mut tokens = self.tokens.clone();
        tokens.extend_from_slice(&self.answer.tokens);
        let mut state = 0xcbf2_9ce4_8422_2325_u64;
        let mut extend = |word: u32| {
            state = (state ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            state ^= state >> 32;
            state as u32
        };
        for byte in self.salt.iter().flat_map(|salt| salt.bytes()) {
            extend(u32::from(byte));
        }
        let blocks = tokens
            .chunks_exact(block_tokens)
            .map(|block| block.iter().fold(0, |_, token| extend(*token)))
            .collect();
        (tokens, blocks)
    }
}
