//! A language model that is nothing but hashes: it finds every mistake in the handling of KV blocks.
//!
//! Its "keys and values" are one number for each token, made of the token, its position and *all* numbers
//! before it, read through the block table. The scores of the next token are made of all numbers up to
//! the position. One wrong, stale or overwritten block anywhere, and all that follows is different. It
//! computes a thousand tokens in the time a real model needs for one, so that schedulers can be fuzzed.
//!
//! Real executors compute the rows of a step in no particular order. So this one refuses a step in
//! which a sequence reads or writes what another one writes in the same step.

mod vocabulary;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::{ExecuteError, Executor};
use model::{BLOCK_TOKENS, Batch, Logits, Span};

pub use vocabulary::ToyVocabulary;

/// The executor. See the module.
#[derive(Debug)]
pub struct HashLm {
    slots: Vec<Slot>,
    step: u64,
    steps: Arc<AtomicUsize>,
    /// Of a hundred rows, how many have the scores that they should have.
    right_percent: u64,
    /// Positions that it has; a step that goes beyond them is refused.
    context: usize,
}

/// Keys and values of one token.
#[derive(Debug, Clone, Copy)]
struct Slot {
    value: u64,
    /// When, and by which span of that step, it was written.
    written: (u64, usize),
}

impl HashLm {
    /// Number of tokens it scores; [`ToyVocabulary`] has a text for each.
    pub const VOCAB: usize = ToyVocabulary::SIZE;

    /// A model with room for `blocks` blocks, filled with rubbish.
    pub fn new(blocks: usize) -> Self {
        let rubbish = |i| Slot {
            value: mix(0xdead_beef, i as u64),
            written: (0, 0),
        };
        Self {
            slots: (0..blocks * BLOCK_TOKENS).map(rubbish).collect(),
            step: 0,
            steps: Arc::default(),
            right_percent: 100,
            context: usize::MAX,
        }
    }

    /// A model that is to draft for this one: it gives the same scores in so many of a hundred places, and
    /// elsewhere others. Which places these are depends on the text alone.
    pub fn drafter(blocks: usize, right_percent: u64) -> Self {
        Self {
            right_percent,
            ..Self::new(blocks)
        }
    }

    /// The same model for shorter texts.
    pub fn with_context(self, context: usize) -> Self {
        Self { context, ..self }
    }

    /// Counts the steps that were executed, also after the executor was given away.
    pub fn steps(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.steps)
    }

    /// What greedy decoding must give after `prompt`, without blocks, batches or an engine.
    pub fn greedy(prompt: &[u32], count: usize) -> Vec<u32> {
        let mut state = START;
        for (position, &token) in prompt.iter().enumerate() {
            state = mix(state, key_value(state, token, position));
        }
        let mut answer = Vec::new();
        while answer.len() < count {
            let mut best = 0;
            for id in 1..Self::VOCAB as u32 {
                if score(state, id) > score(state, best) {
                    best = id;
                }
            }
            let position = prompt.len() + answer.len();
            state = mix(state, key_value(state, best, position));
            answer.push(best);
        }
        answer
    }

    /// The scores of what follows `text`, without blocks, batches or an engine.
    pub fn scores(text: &[u32]) -> Vec<f32> {
        let mut state = START;
        for (position, &token) in text.iter().enumerate() {
            state = mix(state, key_value(state, token, position));
        }
        (0..Self::VOCAB as u32).map(|id| score(state, id)).collect()
    }

    fn slot(&self, table: &[u32], position: usize) -> Result<usize, ExecuteError> {
        table
            .get(position / BLOCK_TOKENS)
            .map(|&block| block as usize * BLOCK_TOKENS + position % BLOCK_TOKENS)
            .filter(|&slot| slot < self.slots.len())
            .ok_or_else(|| ExecuteError(format!("position {position} has no block")))
    }

    /// Writes a span's slots and gives the state after each of its rows.
    fn run(
        &mut self,
        batch: &Batch,
        index: usize,
        span: &Span,
        states: &mut Vec<u64>,
    ) -> Result<(), ExecuteError> {
        let table = batch.table(span);
        let now = (self.step, index);
        let first = batch.positions[span.rows.start] as usize;
        let mut state = START;
        for position in 0..first {
            let slot = self.slots[self.slot(table, position)?];
            if slot.written.0 == self.step {
                return Err(ExecuteError(format!(
                    "span {index} reads position {position}, which span {} writes in the same step",
                    slot.written.1
                )));
            }
            state = mix(state, slot.value);
        }
        for (row, position) in span.rows.clone().zip(first..) {
            if batch.positions[row] as usize != position {
                return Err(ExecuteError("a span's positions have a gap".to_owned()));
            }
            if position >= self.context {
                return Err(ExecuteError(format!(
                    "position {position} is beyond the context"
                )));
            }
            let slot = self.slot(table, position)?;
            if self.slots[slot].written.0 == self.step {
                return Err(ExecuteError(format!(
                    "span {index} writes position {position}, which was written in the same step"
                )));
            }
            let value = key_value(state, batch.tokens[row], position);
            self.slots[slot] = Slot {
                value,
                written: now,
            };
            state = mix(state, value);
            states.push(state);
        }
        Ok(())
    }
}

impl Executor for HashLm {
    fn execute(&mut self, batch: &Batch, logits: &mut Logits) -> Result<(), ExecuteError> {
        self.step += 1;
        self.steps.fetch_add(1, Ordering::Relaxed);
        let mut states = Vec::with_capacity(batch.rows());
        for (index, span) in batch.spans.iter().enumerate() {
            self.run(batch, index, span, &mut states)?;
        }
        let rows = logits.resize(batch.outputs.len(), Self::VOCAB);
        for (scores, &row) in rows.chunks_exact_mut(Self::VOCAB).zip(&batch.outputs) {
            let mut state = states[row as usize];
            if mix(state, 0xd1ce) % 100 >= self.right_percent {
                state = mix(state, 0xbad);
            }
            for (id, value) in scores.iter_mut().enumerate() {
                *value = score(state, id as u32);
            }
        }
        Ok(())
    }

    fn vocab_size(&self) -> usize {
        Self::VOCAB
    }

    fn context_length(&self) -> usize {
        self.context
    }

    fn block_bytes(&self) -> Option<usize> {
        Some(BLOCK_TOKENS * size_of::<u64>())
    }

    fn export(&self, block: u32, out: &mut Vec<u8>) {
        let first = block as usize * BLOCK_TOKENS;
        let slots = &self.slots[first..first + BLOCK_TOKENS];
        out.extend(slots.iter().flat_map(|slot| slot.value.to_le_bytes()));
    }

    fn import(&mut self, block: u32, bytes: &[u8]) -> Result<(), ExecuteError> {
        let first = block as usize * BLOCK_TOKENS;
        let slots = self.slots.get_mut(first..first + BLOCK_TOKENS);
        let slots = slots.filter(|_| bytes.len() == BLOCK_TOKENS * size_of::<u64>());
        let slots =
            slots.ok_or_else(|| ExecuteError("no such block, or not a block".to_owned()))?;
        for (slot, bytes) in slots.iter_mut().zip(bytes.chunks_exact(size_of::<u64>())) {
            let mut value = [0; size_of::<u64>()];
            value.copy_from_slice(bytes);
            *slot = Slot {
                value: u64::from_le_bytes(value),
                written: (0, 0),
            };
        }
        Ok(())
    }
}

const START: u64 = 0x0f0e_0d0c_0b0a_0908;

fn key_value(state: u64, token: u32, position: usize) -> u64 {
    mix(mix(state, u64::from(token)), position as u64)
}

/// Between -4 and 4, in steps so coarse that ties happen.
fn score(state: u64, id: u32) -> f32 {
    let bits = mix(state, u64::from(id) ^ 0x5c0e) >> 54;
    bits as f32 / 128.0 - 4.0
}

/// One round of splitmix64 over both.
fn mix(a: u64, b: u64) -> u64 {
    let mut z = a
        .rotate_left(23)
        .wrapping_add(b.wrapping_mul(0xff51_afd7_ed55_8ccd))
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_row(lm: &mut HashLm, batch: &Batch) -> Vec<f32> {
        let mut logits = Logits::default();
        lm.execute(batch, &mut logits).unwrap();
        logits.row(batch.outputs.len() - 1).to_vec()
    }

    fn batch(tokens: &[u32], start: usize, table: &[u32]) -> Batch {
        let mut batch = Batch::default();
        let rows = batch.push(tokens, start, table);
        batch.want(rows.end - 1);
        batch
    }

    #[test]
    fn chunks_and_other_blocks_change_nothing_but_a_wrong_block_changes_all() {
        let tokens: Vec<u32> = (0..20).collect();
        let mut lm = HashLm::new(8);
        let whole = last_row(&mut lm, &batch(&tokens, 0, &[3, 1]));
        last_row(&mut lm, &batch(&tokens[..17], 0, &[5, 0]));
        let chunked = last_row(&mut lm, &batch(&tokens[17..], 17, &[5, 0]));
        assert_eq!(whole, chunked);
        last_row(&mut lm, &batch(&tokens[..17], 0, &[5, 0]));
        let wrong = last_row(&mut lm, &batch(&tokens[17..], 17, &[6, 0]));
        assert_ne!(whole, wrong);
    }

    #[test]
    fn a_step_whose_sequences_disturb_each_other_is_refused() {
        let mut lm = HashLm::new(4);
        let mut both = batch(&[1, 2], 0, &[0]);
        both.push(&[3], 2, &[0]);
        assert!(lm.execute(&both, &mut Logits::default()).is_err());
    }
}
