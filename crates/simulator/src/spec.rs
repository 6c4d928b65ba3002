//! Kinds of workers: plausible, round figures, not measurements of a device.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::SimulatorError;

/// How fast and how large a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerSpec {
    /// Prompt tokens per second at short context.
    pub prefill_tokens_per_second: f64,
    /// Context at which attention doubles the cost of a prompt token.
    pub attention_scale_tokens: f64,
    /// What a step costs whatever is in it.
    pub step_base: Duration,
    /// What each decoding request adds.
    pub step_per_sequence: Duration,
    /// What each token of their contexts adds, in seconds.
    pub step_seconds_per_context_token: f64,
    /// Tokens the KV cache holds.
    pub kv_tokens: u64,
    /// Tokens per block.
    pub block_tokens: u32,
    /// Token budget of a step.
    pub step_tokens: u32,
    /// The most requests running at once.
    pub max_sequences: u32,
}

impl WorkerSpec {
    /// Blocks the KV cache has.
    pub fn kv_blocks(&self) -> u64 {
        self.kv_tokens / u64::from(self.block_tokens.max(1))
    }

    /// The same machine with one token where there were `tokens`, and `faster` on the clock, so that an hour of
    /// traffic can be replayed in minutes on real sockets: work, memory and waiting keep their proportions.
    ///
    /// A step then stands for `tokens` steps, so it takes that many times as long.
    #[must_use]
    pub fn scaled(self, tokens: u32, faster: f64) -> Self {
        let tokens = tokens.max(1);
        let size = f64::from(tokens);
        Self {
            prefill_tokens_per_second: self.prefill_tokens_per_second * faster / size,
            attention_scale_tokens: self.attention_scale_tokens / size,
            step_base: self.step_base.mul_f64(size / faster),
            step_per_sequence: self.step_per_sequence.mul_f64(size / faster),
            step_seconds_per_context_token: self.step_seconds_per_context_token * size * size
                / faster,
            kv_tokens: self.kv_tokens / u64::from(tokens),
            block_tokens: (self.block_tokens / tokens).max(1),
            step_tokens: (self.step_tokens / tokens).max(1),
            max_sequences: self.max_sequences,
        }
    }

    /// A kind by its name.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn by_name(name: &str) -> Result<Self, SimulatorError> {
        match name {
            "a100-8b" => Ok(Self::a100_8b()),
            "h100-8b" => Ok(Self::h100_8b()),
            "h100-70b-tp4" => Ok(Self::h100_70b_tp4()),
            "l40s-8b" => Ok(Self::l40s_8b()),
            _ => Err(SimulatorError::UnknownKind {
                name: name.to_owned(),
            }),
        }
    }

    /// An 8B model on an A100-class device.
    pub fn a100_8b() -> Self {
        Self {
            prefill_tokens_per_second: 10_000.0,
            attention_scale_tokens: 60_000.0,
            step_base: Duration::from_millis(8),
            step_per_sequence: Duration::from_micros(60),
            step_seconds_per_context_token: 1.0e-7,
            kv_tokens: 300_000,
            block_tokens: 16,
            step_tokens: 8_192,
            max_sequences: 256,
        }
    }

    /// An 8B model in FP8 on an H100-class device.
    pub fn h100_8b() -> Self {
        Self {
            prefill_tokens_per_second: 28_000.0,
            attention_scale_tokens: 70_000.0,
            step_base: Duration::from_millis(6),
            step_per_sequence: Duration::from_micros(40),
            step_seconds_per_context_token: 0.5e-7,
            kv_tokens: 900_000,
            ..Self::a100_8b()
        }
    }

    /// A 70B model over four H100-class devices.
    pub fn h100_70b_tp4() -> Self {
        Self {
            prefill_tokens_per_second: 9_000.0,
            attention_scale_tokens: 150_000.0,
            step_base: Duration::from_millis(18),
            step_per_sequence: Duration::from_micros(120),
            step_seconds_per_context_token: 0.8e-7,
            kv_tokens: 520_000,
            step_tokens: 4_096,
            ..Self::a100_8b()
        }
    }

    /// An 8B model on a device with little memory, where caches are contested.
    pub fn l40s_8b() -> Self {
        Self {
            prefill_tokens_per_second: 8_000.0,
            attention_scale_tokens: 45_000.0,
            step_base: Duration::from_millis(20),
            step_per_sequence: Duration::from_micros(100),
            step_seconds_per_context_token: 2.0e-7,
            kv_tokens: 170_000,
            step_tokens: 2_048,
            ..Self::a100_8b()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::{Job, SimWorker};

    /// Time until a prompt's answer is complete.
    fn answers_in(spec: WorkerSpec, prompt_tokens: u64, output_tokens: u64) -> f64 {
        let mut worker = SimWorker::new(spec);
        worker.submit(Job {
            id: 0,
            prompt_tokens,
            output_tokens,
            blocks: Vec::new(),
        });
        std::iter::from_fn(|| worker.step())
            .map(|step| step.takes.as_secs_f64())
            .sum()
    }

    #[test]
    fn a_scaled_machine_takes_the_scaled_time() {
        let spec = WorkerSpec::a100_8b();
        let whole = answers_in(spec, 16_000, 800);
        let scaled = answers_in(spec.scaled(8, 30.0), 2_000, 100);
        assert!(
            (scaled * 30.0 / whole - 1.0).abs() < 0.02,
            "{whole} {scaled}"
        );
        assert_eq!(spec.scaled(8, 30.0).kv_tokens, 37_500);
    }
}
