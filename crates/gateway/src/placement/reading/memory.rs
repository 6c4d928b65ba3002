//! What is remembered of prompts.

use std::sync::Arc;

use routing::memo::{ChainMemo, Memo};

use super::Prompt;

/// What is remembered of prompts, within one cap.
pub(super) struct Memory {
    /// Whole prompts, by the bytes they came as.
    pub(super) repeats: Memo<Arc<Prompt>>,
    /// Beginnings of chats, by their rendered text.
    pub(super) chains: ChainMemo,
}

impl Memory {
    /// Half for each: a chat has one entry there and up to four here, of which the oldest go first.
    pub(super) fn new(byte_cap: usize) -> Self {
        Self {
            repeats: Memo::new(byte_cap / 2),
            chains: ChainMemo::new(byte_cap / 2),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.repeats.bytes() + self.chains.bytes()
    }
}
