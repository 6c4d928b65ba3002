//! A gateway on a free port, in front of a real engine that recites a script instead of computing.
//!
//! The token after position `p` is `script[p % script.len()]`, whatever the prompt says, so that every
//! test knows the answer; tokens are bytes. How fast the engine steps is up to the test.

pub(crate) mod client;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cache::{Cache, Secret, Stores};
use engine::{Engine, EngineConfig, ExecuteError, Executor, Vocabulary};
use forespeak_gateway::tenants::Tenants;
use forespeak_gateway::{Codec, Gateway, Prices, ServedModel, Server, ServerConfig, StopSwitch};
use model::{Batch, Logits};
use protocol::chat::Conversation;
use tokio::task::JoinHandle;

pub(crate) const END: u32 = 256;
const VOCAB: usize = 257;

/// The bytes of all tokens, and the end.
pub(crate) struct Bytes {
    tokens: Vec<Vec<u8>>,
}

impl Bytes {
    pub(crate) fn new() -> Self {
        let mut tokens: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
        tokens.push(b"<end>".to_vec());
        Self { tokens }
    }
}

impl Vocabulary for Bytes {
    fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.tokens.get(id as usize).map(Vec::as_slice)
    }

    fn is_special(&self, id: u32) -> bool {
        id == END
    }

    fn vocab_size(&self) -> usize {
        VOCAB
    }

    fn eos(&self) -> &[u32] {
        &[END]
    }
}

impl Codec for Bytes {
    fn encode(&self, text: &str, _add_special_tokens: bool) -> Result<Vec<u32>, String> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn decode(&self, tokens: &[u32]) -> Result<String, String> {
        let mut bytes = Vec::new();
        for &id in tokens {
            let token = Vocabulary::token_bytes(self, id).ok_or(format!("no token {id}"))?;
            bytes.extend_from_slice(token);
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn token_bytes(&self, token: u32) -> Option<&[u8]> {
        Vocabulary::token_bytes(self, token)
    }

    fn vocab_size(&self) -> usize {
        VOCAB
    }

    /// `[role]content` for each message, then `[assistant]`.
    fn render(&self, conversation: &Conversation) -> Result<String, String> {
        let mut prompt = String::new();
        for message in &conversation.messages {
            let content = message.content.as_deref().unwrap_or_default();
            prompt.push_str(&format!("[{}]{content}", message.role));
        }
        if conversation.add_generation_prompt {
            prompt.push_str("[assistant]");
        }
        Ok(prompt)
    }
}

struct Reciter {
    script: Vec<u32>,
    step: Duration,
}

impl Executor for Reciter {
    fn execute(&mut self, batch: &Batch, logits: &mut Logits) -> Result<(), ExecuteError> {
        // This *is* the passing of time under test: a step that takes so long.
        std::thread::sleep(self.step);
        let scores = logits.resize(batch.outputs.len(), VOCAB);
        scores.fill(0.0);
        for (row, &output) in scores.chunks_mut(VOCAB).zip(&batch.outputs) {
            let position = batch.positions[output as usize] as usize;
            let token = self.script[position % self.script.len()];
            row[token as usize] = 100.0;
        }
        Ok(())
    }

    fn vocab_size(&self) -> usize {
        VOCAB
    }
}

/// What differs between tests.
pub(crate) struct Setup {
    pub(crate) script: Vec<u32>,
    pub(crate) step: Duration,
    pub(crate) engine: EngineConfig,
    pub(crate) server: ServerConfig,
    pub(crate) tenants: Tenants,
    /// Whether answers are kept.
    pub(crate) cache: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            script: script("abcdefghij"),
            step: Duration::ZERO,
            engine: EngineConfig {
                model_name: MODEL.to_owned(),
                max_model_len: 512,
                num_blocks: 256,
                ..EngineConfig::default()
            },
            server: ServerConfig {
                listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                ..ServerConfig::default()
            },
            tenants: Tenants::of_a_worker(),
            cache: false,
        }
    }
}

pub(crate) const MODEL: &str = "reciter";

pub(crate) fn script(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

/// What the default script answers to a prompt of `prompt` bytes.
pub(crate) fn recited(prompt: usize, tokens: usize) -> String {
    (prompt - 1..prompt - 1 + tokens)
        .map(|position| char::from(b"abcdefghij"[position % 10]))
        .collect()
}

/// A running gateway; it ends with the test.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) stop: StopSwitch,
    pub(crate) engine: Arc<Engine>,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) server: JoinHandle<()>,
}

impl Setup {
    pub(crate) fn start(self) -> Running {
        let max_model_len = self.engine.max_model_len;
        let executor = Box::new(Reciter {
            script: self.script,
            step: self.step,
        });
        let engine = Engine::start(self.engine, executor, Arc::new(Bytes::new())).unwrap();
        let engine = Arc::new(engine);
        let model = ServedModel {
            revision: "1".to_owned(),
            names: vec![MODEL.to_owned(), "alias".to_owned()],
            max_model_len,
            codec: Arc::new(Bytes::new()),
        };
        let worker: Arc<dyn forespeak_gateway::Worker> = Arc::clone(&engine) as _;
        let mut gateway = Gateway::new(model, worker, self.tenants);
        if self.cache {
            let cache = Cache::new(&Secret::random(), &Stores::default()).unwrap();
            gateway = gateway.with_cache(Arc::new(cache), Prices::default());
        }
        let gateway = Arc::new(gateway);
        let server = Server::bind(self.server, Arc::clone(&gateway)).unwrap();
        let address = server.address();
        let stop = StopSwitch::new();
        let server = tokio::spawn(server.run(stop.clone()));
        Running {
            address,
            stop,
            engine,
            gateway,
            server,
        }
    }
}

/// Polls until `condition` holds, and gives the time it took. Panics after ten seconds.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(10), "never: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    start.elapsed()
}
