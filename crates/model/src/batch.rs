//! One step's work for whoever executes the model: rows of several sequences, flattened.
//!
//! A row is one token at one position. A sequence contributes a *span* of consecutive rows: one row
//! when it decodes, many when a chunk of its prompt is prefilled, a few when drafts are verified.
//! Nothing here says which of the three it is, so they can be mixed freely, and the promise of batch
//! invariance (a row's result does not depend on its neighbours) has no special cases to break it.

use std::ops::Range;

/// Tokens in one KV block. Small enough that little is wasted at a sequence's end, and exactly one
/// AVX-512 register of `f32` scores.
pub const BLOCK_TOKENS: usize = 16;

/// One step's rows, in the order of their spans.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Token id of each row.
    pub tokens: Vec<u32>,
    /// Position of each row in its sequence, counted from 0.
    pub positions: Vec<u32>,
    /// Which rows belong together, and where their keys and values live. Spans cover all rows in order.
    pub spans: Vec<Span>,
    /// The block tables of all spans, one after another.
    pub tables: Vec<u32>,
    /// Rows whose logits are wanted, ascending.
    pub outputs: Vec<u32>,
}

/// The rows of one sequence in a [`Batch`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Rows of this sequence; their positions are consecutive.
    pub rows: Range<usize>,
    /// This sequence's part of [`Batch::tables`]: entry `i` holds positions
    /// `i * BLOCK_TOKENS .. (i + 1) * BLOCK_TOKENS`. It reaches at least to the span's last position.
    pub table: Range<usize>,
}

impl Batch {
    /// Empties the batch and keeps its memory: the step loop refills one batch over and over.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.spans.clear();
        self.tables.clear();
        self.outputs.clear();
    }

    /// Adds one sequence: `tokens` at consecutive positions from `start`, stored through `table`.
    /// Call [`Batch::want`] for the rows whose logits are needed.
    pub fn push(&mut self, tokens: &[u32], start: usize, table: &[u32]) -> Range<usize> {
        debug_assert!(!tokens.is_empty());
        debug_assert!(table.len() * BLOCK_TOKENS >= start + tokens.len());
        let rows = self.tokens.len()..self.tokens.len() + tokens.len();
        self.tokens.extend_from_slice(tokens);
        self.positions
            .extend((start..start + tokens.len()).map(|p| p as u32));
        let blocks = self.tables.len()..self.tables.len() + table.len();
        self.tables.extend_from_slice(table);
        self.spans.push(Span {
            rows: rows.clone(),
            table: blocks,
        });
        rows
    }

    /// Asks for the logits of `row`; rows are asked for in ascending order.
    pub fn want(&mut self, row: usize) {
        debug_assert!(row < self.tokens.len());
        debug_assert!(
            self.outputs
                .last()
                .is_none_or(|&last| (last as usize) < row)
        );
        self.outputs.push(row as u32);
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// The block table of `span`.
    pub fn table(&self, span: &Span) -> &[u32] {
        &self.tables[span.table.clone()]
    }
}

/// What a step gives back: one row of vocabulary scores per [`Batch::outputs`] entry.
#[derive(Debug, Clone, Default)]
pub struct Logits {
    values: Vec<f32>,
    vocab: usize,
}

impl Logits {
    /// Makes room for `rows` rows of `vocab` scores and returns them to be filled.
    pub fn resize(&mut self, rows: usize, vocab: usize) -> &mut [f32] {
        self.vocab = vocab;
        self.values.resize(rows * vocab, 0.0);
        &mut self.values
    }

    /// Scores of the `i`-th wanted row.
    pub fn row(&self, i: usize) -> &[f32] {
        &self.values[i * self.vocab..(i + 1) * self.vocab]
    }

    /// The same, for a sampler that edits scores in place.
    pub fn row_mut(&mut self, i: usize) -> &mut [f32] {
        &mut self.values[i * self.vocab..(i + 1) * self.vocab]
    }
}
