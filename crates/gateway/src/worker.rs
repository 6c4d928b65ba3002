//! The gateway's only view of something that generates, and of the language it speaks.

use std::future::Future;
use std::pin::Pin;

use engine::{Engine, Generation, Request, SpeculationConfig, SpeculationStatus, SubmitError};
use protocol::chat::Conversation;
use serde_json::{Map, Value};

/// Something that generates. Today the embedded engine; a server elsewhere would be another.
pub trait Worker: Send + Sync {
    /// Takes a request, or says why not. Dropping the generation cancels it.
    ///
    /// May take milliseconds when the request asks for a format.
    fn submit(&self, request: Request) -> Result<Generation, SubmitError>;

    /// Whether it can still answer anybody, now or later.
    fn is_alive(&self) -> bool;

    /// How busy it is.
    fn load(&self) -> Load;

    /// Appends its metrics in OpenMetrics' text format, without the closing line.
    fn write_metrics(&self, text: &mut String);

    /// Takes no more requests and completes when all that were taken have finished.
    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Fails whatever still runs.
    fn stop(&self);

    /// How it speculates; `None` if that is not known here.
    fn speculation(&self) -> Option<SpeculationStatus> {
        None
    }

    /// Lets it speculate in another way from its next step on.
    fn set_speculation(&self, _config: SpeculationConfig) {}
}

/// How busy a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Load {
    /// Sequences that are being generated.
    pub running: usize,
    /// Sequences that wait.
    pub waiting: usize,
    /// Share of KV blocks in use, 0 to 1.
    pub kv_cache_usage: f64,
}

impl Worker for Engine {
    fn submit(&self, request: Request) -> Result<Generation, SubmitError> {
        Engine::submit(self, request)
    }

    fn is_alive(&self) -> bool {
        Engine::is_alive(self)
    }

    fn load(&self) -> Load {
        let metrics = self.metrics();
        Load {
            running: metrics.running(),
            waiting: metrics.waiting(),
            kv_cache_usage: metrics.kv_cache_usage(),
        }
    }

    fn write_metrics(&self, text: &mut String) {
        self.metrics().encode(text);
    }

    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(Engine::drain(self))
    }

    fn stop(&self) {
        Engine::stop(self);
    }

    fn speculation(&self) -> Option<SpeculationStatus> {
        Some(Engine::speculation(self))
    }

    fn set_speculation(&self, config: SpeculationConfig) {
        Engine::set_speculation(self, config);
    }
}

/// How a model's text becomes tokens and back. Errors are texts for the client.
pub trait Codec: Send + Sync {
    /// Tokens of a text, with the model's begin-of-text token if `add_special_tokens`.
    fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, String>;

    /// Text of tokens; unknown ids are an error, incomplete characters are replaced.
    fn decode(&self, tokens: &[u32]) -> Result<String, String>;

    /// The bytes of one token; for a special token its written form. `None`: no such token.
    fn token_bytes(&self, token: u32) -> Option<&[u8]>;

    /// Number of token ids.
    fn vocab_size(&self) -> usize;

    /// The prompt that a conversation becomes.
    fn render(&self, conversation: &Conversation) -> Result<String, String>;

    /// The prompt that a chat becomes, of which nothing is known but that it is JSON.
    fn render_json(&self, _chat: &JsonChat<'_>) -> Result<String, String> {
        Err("this model's chats cannot be rendered".to_owned())
    }

    /// Byte offsets, ascending, at which a rendered prompt can be cut so that its parts, encoded apart and
    /// without special tokens added, have the tokens of the whole.
    fn seams(&self, _prompt: &str) -> Vec<usize> {
        Vec::new()
    }
}

/// A chat in the shapes that templates expect.
#[derive(Debug, Clone, Copy)]
pub struct JsonChat<'a> {
    /// Messages in OpenAI's shape.
    pub messages: &'a [Value],
    /// Tools likewise.
    pub tools: Option<&'a [Value]>,
    /// End with the opening of an answer.
    pub add_generation_prompt: bool,
    /// Leave the last message open, for the model to continue.
    pub continue_final_message: bool,
    /// Said to the template itself.
    pub template_arguments: Option<&'a Map<String, Value>>,
}
