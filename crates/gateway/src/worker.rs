//! The gateway's only view of something that generates, and of the language it speaks.

use std::future::Future;
use std::pin::Pin;

use engine::{Engine, Generation, Request, SubmitError};
use protocol::chat::Conversation;

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
}
