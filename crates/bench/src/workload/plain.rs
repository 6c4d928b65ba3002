//! Prompts of one size, of which groups share their beginning.

use super::{Due, Item, Prompt};
use crate::arrivals::Gaps;

/// Numbers of texts that are nobody else's begin here.
const OWN_TEXTS: u64 = 1 << 32;

/// The sizes.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    /// How many requests.
    pub requests: usize,
    /// Tokens of a prompt.
    pub prompt_tokens: u64,
    /// Tokens of it that its group shares.
    pub shared_tokens: u64,
    /// How many groups.
    pub groups: u64,
    /// Tokens of an answer.
    pub output_tokens: u64,
    /// Whether prompts are texts one after the other, or a chat whose shared part is a message of its own.
    pub as_chat: bool,
}

/// The requests; each group in turn.
pub fn plain(sizes: Plain, gaps: Gaps, seed: u64) -> Vec<Item> {
    let shared = sizes.shared_tokens.min(sizes.prompt_tokens);
    gaps.times(sizes.requests, seed)
        .into_iter()
        .zip(0..)
        .map(|(at, index): (_, u64)| Item {
            due: Due::At(at),
            session: index,
            prompt: Prompt::Parts(vec![
                (index % sizes.groups.max(1), shared),
                (
                    OWN_TEXTS + (seed << 24) + index,
                    sizes.prompt_tokens - shared,
                ),
            ]),
            output_tokens: sizes.output_tokens,
        })
        .collect()
}
