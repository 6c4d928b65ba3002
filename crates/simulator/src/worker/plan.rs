//! What one step computes, and how long that takes.

use std::time::Duration;

use super::sequence::Sequence;
use super::types::WorkerEvent;
use crate::spec::WorkerSpec;

#[derive(Default)]
pub(super) struct Plan {
    pub(super) budget: u64,
    /// Tokens per running request, in their order.
    pub(super) chunks: Vec<u64>,
    pub(super) decodes: u64,
    pub(super) decode_context: u64,
    pub(super) prefill_tokens: u64,
    /// Sum over prefilled tokens of the context they attend to.
    pub(super) prefill_token_context: f64,
    pub(super) preempted: bool,
    pub(super) evicted: Vec<u64>,
    pub(super) events: Vec<WorkerEvent>,
}

impl Plan {
    pub(super) fn schedule(&mut self, sequence: &Sequence, tokens: u64) {
        self.budget -= tokens;
        self.chunks.push(tokens);
        if sequence.decoding() {
            self.decodes += 1;
            self.decode_context += sequence.computed;
        } else {
            self.prefill_tokens += tokens;
            let context = sequence.computed as f64 + tokens as f64 / 2.0;
            self.prefill_token_context += tokens as f64 * context;
        }
    }

    /// How long the step takes.
    pub(super) fn takes(&self, spec: &WorkerSpec) -> Duration {
        let decode = spec.step_per_sequence.as_secs_f64() * self.decodes as f64
            + spec.step_seconds_per_context_token * self.decode_context as f64;
        spec.step_base + Duration::from_secs_f64(decode) + self.prefill_takes(spec)
    }

    /// The share of that which is due to prompts.
    pub(super) fn prefill_takes(&self, spec: &WorkerSpec) -> Duration {
        let attention = self.prefill_token_context / spec.attention_scale_tokens;
        Duration::from_secs_f64(
            (self.prefill_tokens as f64 + attention) / spec.prefill_tokens_per_second,
        )
    }
}
