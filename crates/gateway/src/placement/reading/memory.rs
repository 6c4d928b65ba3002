//! What is remembered of prompts.

use std::sync::Arc;

use routing::memo::{ChainMemo, Memo};

use super::Prompt;
use super::standins::Skeleton;

/// What is remembered of prompts, within one cap.
pub(super) struct Memory {
    /// Whole prompts, by the bytes they came as.
    pub(super) repeats: Memo<Arc<Prompt>>,
    /// Beginnings of chats, by their rendered text.
    pub(super) chains: ChainMemo,
    /// What the template makes of chats, their texts left out.
    pub(super) skeletons: Memo<Arc<Skeleton>>,
}

/// The share of the cap for skeletons: small, and few are different.
const SKELETONS_SHARE: usize = 16;

impl Memory {
    /// Half for each: a chat has one entry there and up to four here, of which the oldest go first.
    pub(super) fn new(byte_cap: usize) -> Self {
        let skeletons = byte_cap / SKELETONS_SHARE;
        let half = (byte_cap - skeletons) / 2;
        Self {
            repeats: Memo::new(half),
            chains: ChainMemo::new(half),
            skeletons: Memo::new(skeletons),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.repeats.bytes() + self.chains.bytes() + self.skeletons.bytes()
    }
}
