//! What a policy is told about a request.

use serde::Serialize;

use crate::index::Matches;
use crate::worker::WorkerView;

/// How much a request matters when not all can be served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Refused first: batch work, speculation on others' behalf.
    Low,
    /// Ordinary traffic.
    #[default]
    Normal,
    /// Refused last, waits longest.
    High,
}

/// A request as routing sees it.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens the answer will likely have (at most what was asked for).
    pub expected_output_tokens: u64,
    /// Leading blocks of the prompt each worker holds.
    pub matches: &'a Matches,
    /// Tokens per block of `matches`.
    pub block_tokens: u32,
    /// How much it matters.
    pub priority: Priority,
    /// Stays the same for one user, session or chat; made from the prompt's first blocks where the client gives
    /// none. Two requests with the same key like the same worker.
    pub session: u64,
}

impl RequestView<'_> {
    /// Prompt tokens whose computing we count on being saved there: those that it holds, and of those that it can load
    /// what they are worth. Never the whole prompt: its last token must be computed.
    pub fn cached_tokens(&self, worker: &WorkerView) -> u64 {
        self.believed(
            worker,
            self.matches.worth(worker.id) * u64::from(self.block_tokens) / 1000,
        )
    }

    fn believed(&self, worker: &WorkerView, matched: u64) -> u64 {
        let matched = matched.min(self.prompt_tokens.saturating_sub(1));
        (matched as f64 * worker.hit_trust.clamp(0.0, 1.0)) as u64
    }

    /// Prompt tokens that worker must still compute.
    pub fn uncached_tokens(&self, worker: &WorkerView) -> u64 {
        self.prompt_tokens - self.cached_tokens(worker)
    }

    /// KV tokens the request takes beyond what is cached there. What is loaded takes room like what is computed.
    pub fn kv_demand(&self, worker: &WorkerView) -> u64 {
        let held = u64::from(self.matches.blocks(worker.id)) * u64::from(self.block_tokens);
        self.prompt_tokens - self.believed(worker, held) + self.expected_output_tokens
    }
}
