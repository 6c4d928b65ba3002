//! A request that wants a worker, as far as placing it needs to know.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use protocol::survey::Survey;
use routing::Priority;
use tokio::time::Instant;

/// A request that wants a worker.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Whose it is: waiting is fair between tenants.
    pub tenant: Arc<str>,
    /// The `cache_salt` that goes to the worker with it; prefixes of different salts are different.
    pub salt: Arc<str>,
    /// The adapter it wants, if any.
    pub lora: Option<Arc<str>>,
    /// The body as it came.
    pub body: Bytes,
    /// Where in it the prompt stands.
    pub prompt: PromptSpans,
    /// The most tokens an answer may have, if it says so.
    pub max_tokens: Option<u64>,
    /// How many answers it wants, at least 1.
    pub answers: u32,
    /// How much it matters.
    pub priority: Priority,
    /// The same for all requests of one user or session, if the client names one.
    pub session: Option<u64>,
    /// When nobody waits for the answer any more.
    pub deadline: Instant,
}

/// Where in a body its prompt stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptSpans {
    /// `/v1/chat/completions`.
    Chat(ChatSpans),
    /// `/v1/completions`.
    Completion {
        /// The value of `prompt`.
        prompt: Range<usize>,
        /// Of the same name; true unless the client says otherwise.
        add_special_tokens: bool,
    },
    /// Anything else: only its size counts.
    Opaque,
}

impl PromptSpans {
    /// Of a chat that was surveyed.
    pub fn chat(survey: &Survey, body: &[u8]) -> Self {
        let Some(messages) = survey.value("messages") else {
            return Self::Opaque;
        };
        let switch = |name, default| survey.switch(body, name).unwrap_or(default);
        let continue_final_message = switch("continue_final_message", false);
        Self::Chat(ChatSpans {
            messages,
            tools: survey.value("tools"),
            template_arguments: survey.value("chat_template_kwargs"),
            add_generation_prompt: switch("add_generation_prompt", !continue_final_message),
            continue_final_message,
            add_special_tokens: switch("add_special_tokens", false),
        })
    }

    /// Of a completion that was surveyed.
    pub fn completion(survey: &Survey, body: &[u8]) -> Self {
        survey
            .value("prompt")
            .map_or(Self::Opaque, |prompt| Self::Completion {
                prompt,
                add_special_tokens: survey.switch(body, "add_special_tokens").unwrap_or(true),
            })
    }
}

/// What of a chat decides its prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatSpans {
    /// The value of `messages`.
    pub messages: Range<usize>,
    /// The value of `tools`, unless it is missing or null.
    pub tools: Option<Range<usize>>,
    /// The value of `chat_template_kwargs`, likewise.
    pub template_arguments: Option<Range<usize>>,
    /// Of the same name; true unless the client says otherwise.
    pub add_generation_prompt: bool,
    /// Of the same name; false unless the client says otherwise.
    pub continue_final_message: bool,
    /// Of the same name; false unless the client says otherwise.
    pub add_special_tokens: bool,
}

impl ChatSpans {
    /// Messages and nothing else.
    pub fn new(messages: Range<usize>) -> Self {
        Self {
            messages,
            tools: None,
            template_arguments: None,
            add_generation_prompt: true,
            continue_final_message: false,
            add_special_tokens: false,
        }
    }
}
