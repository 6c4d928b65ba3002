//! A prompt becomes keys: the names of its prefixes, under which the index knows who holds them.
//!
//! ```text
//! repeat   seen before, byte for byte           one hash over its bytes
//! grown    begins like one seen before          rendered whole, tokenised from where it is new
//! whole    new                                  rendered and tokenised
//! text     no tokenizer, or it cannot read it   blocks of bytes as they stand in the body
//! ```
//!
//! The keys of the first three are exactly those of the worker's own tokens: the index hears from the
//! workers in token ids. A grown chat is therefore *rendered whole* (a template may treat an old message
//! differently once another follows) and cut at seams, where cutting changes no token; the longest run of
//! parts seen before needs no tokenising. What cannot be read is not refused here. That is for the worker
//! to do, and a request whose keys mean little is merely placed by load.

mod chat;
mod memory;
mod standins;
#[cfg(test)]
mod tests;
mod work;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use routing::keys::{BlockKey, KeySeed, Root, TextChain};
use routing::memo::{Weighed, fingerprint};

use super::ask::{Ask, ChatSpans, PromptSpans};
use crate::worker::Codec;
use memory::Memory;
use work::{Work, read_near_or_far};

/// Bytes of text that a token stands for, where none can be counted.
const BYTES_PER_TOKEN: usize = 4;

/// Templates may print the date; what was rendered is forgotten after so long.
const SECONDS_RENDERED: u64 = 3600;

/// A prompt that was read.
#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) keys: Arc<Vec<BlockKey>>,
    pub(super) tokens: u64,
}

impl Weighed for Prompt {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.keys.capacity() * size_of::<BlockKey>()
    }
}

/// How a prompt was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum How {
    Repeat,
    Grown,
    Whole,
    Text,
}

impl How {
    pub(super) const ALL: [Self; 4] = [Self::Repeat, Self::Grown, Self::Whole, Self::Text];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Repeat => "repeat",
            Self::Grown => "grown",
            Self::Whole => "whole",
            Self::Text => "text",
        }
    }
}

/// Reads the prompts of one model.
#[derive(Clone)]
pub(super) struct Reader {
    codec: Option<Arc<dyn Codec>>,
    seed: KeySeed,
    block_tokens: usize,
    memory: Arc<Mutex<Memory>>,
}

impl Reader {
    pub(super) fn new(
        codec: Option<Arc<dyn Codec>>,
        seed: KeySeed,
        block_tokens: usize,
        memo_bytes: usize,
    ) -> Self {
        Self {
            codec,
            seed,
            block_tokens,
            memory: Arc::new(Mutex::new(Memory::new(memo_bytes))),
        }
    }

    /// Whether its keys are those of token ids, which KV events can be compared with.
    pub(super) fn knows_tokens(&self) -> bool {
        self.codec.is_some()
    }

    pub(super) async fn read(&self, ask: &Ask) -> (Arc<Prompt>, How) {
        let root = Root::new(self.seed, &ask.salt, ask.lora.as_deref());
        let print = print(root, ask);
        if let Some(prompt) = self.with_memory(|memory| memory.repeats.get(print)) {
            return (prompt, How::Repeat);
        }
        let (prompt, how) = match &self.codec {
            Some(codec) => {
                let work = Work {
                    reader: self.clone(),
                    codec: Arc::clone(codec),
                    root,
                    body: ask.body.clone(),
                    spans: ask.prompt.clone(),
                };
                let read = read_near_or_far(work).await;
                read.unwrap_or_else(|_unreadable| (self.as_text(root, ask), How::Text))
            }
            None => (self.as_text(root, ask), How::Text),
        };
        let prompt = Arc::new(prompt);
        self.with_memory(|memory| memory.repeats.put(print, Arc::clone(&prompt)));
        (prompt, how)
    }

    /// Tokens of a text; `None` without a tokenizer.
    pub(super) fn count(&self, text: &str) -> Option<u64> {
        let tokens = self.codec.as_ref()?.encode(text, false).ok()?;
        Some(tokens.len() as u64)
    }

    /// Bytes that the memory takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.with_memory(|memory| memory.bytes())
    }

    /// Blocks of the prompt's bytes as they stand in the body: a chat that goes on begins with the same.
    fn as_text(&self, root: Root, ask: &Ask) -> Prompt {
        let mut chain = TextChain::new(root, self.block_tokens * BYTES_PER_TOKEN);
        let mut bytes = 0;
        for span in deciding_spans(ask).into_iter().flatten() {
            chain.extend(span);
            bytes += span.len();
        }
        Prompt {
            keys: chain.into_keys(),
            tokens: bytes.div_ceil(BYTES_PER_TOKEN).max(1) as u64,
        }
    }

    fn with_memory<T>(&self, work: impl FnOnce(&mut Memory) -> T) -> T {
        work(&mut self.memory.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The fingerprint of everything that decides a prompt.
fn print(root: Root, ask: &Ask) -> u64 {
    let flags = match &ask.prompt {
        PromptSpans::Chat(chat) => chat_flags(chat),
        PromptSpans::Completion {
            add_special_tokens, ..
        } => [2, u8::from(*add_special_tokens), 0, 0],
        PromptSpans::Opaque => [3, 0, 0, 0],
    };
    let [arguments, tools, text] = deciding_spans(ask).map(Option::unwrap_or_default);
    let parts: [&[u8]; 5] = [&flags, &hour(), arguments, tools, text];
    fingerprint(root, parts)
}

/// Templates may print the date, so what was rendered is good for an hour.
fn hour() -> [u8; 8] {
    let hour = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs() / SECONDS_RENDERED);
    hour.to_le_bytes()
}

fn chat_flags(chat: &ChatSpans) -> [u8; 4] {
    [
        1,
        u8::from(chat.add_generation_prompt),
        u8::from(chat.continue_final_message),
        u8::from(chat.add_special_tokens),
    ]
}

/// The parts of a body that decide its prompt, in the order in which a prompt has them.
fn deciding_spans(ask: &Ask) -> [Option<&[u8]>; 3] {
    let get = |span: &Range<usize>| ask.body.get(span.clone());
    match &ask.prompt {
        PromptSpans::Chat(chat) => [
            chat.template_arguments.as_ref().and_then(get),
            chat.tools.as_ref().and_then(get),
            get(&chat.messages),
        ],
        PromptSpans::Completion { prompt, .. } => [None, None, get(prompt)],
        PromptSpans::Opaque => [None, None, Some(&ask.body)],
    }
}
