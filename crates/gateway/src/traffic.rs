//! How much went through, for the status line.

use std::sync::atomic::{AtomicU64, Ordering};

/// Tokens since the start.
#[derive(Debug, Default)]
pub struct Traffic {
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
}

impl Traffic {
    /// Tokens of prompts that were taken.
    pub fn prompt_tokens(&self) -> u64 {
        self.prompt_tokens.load(Ordering::Relaxed)
    }

    /// Tokens that were generated.
    pub fn completion_tokens(&self) -> u64 {
        self.completion_tokens.load(Ordering::Relaxed)
    }

    pub(crate) fn prompted(&self, tokens: usize) {
        self.prompt_tokens
            .fetch_add(tokens as u64, Ordering::Relaxed);
    }

    pub(crate) fn generated(&self, tokens: usize) {
        self.completion_tokens
            .fetch_add(tokens as u64, Ordering::Relaxed);
    }
}
