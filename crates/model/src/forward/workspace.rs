//! Memory of a step, kept from step to step.

use kernels::{Activations, AttentionRow, Scratch};

use crate::batch::Batch;
use crate::config::ModelConfig;

/// Buffers that a step needs. One for each thread that runs steps; they grow to the largest step.
#[derive(Default)]
pub struct Workspace {
    pub(super) scratch: Scratch,
    pub(super) rows: Vec<AttentionRow>,
    /// The residual stream.
    pub(super) x: Vec<f32>,
    pub(super) q: Vec<f32>,
    pub(super) k: Vec<f32>,
    pub(super) v: Vec<f32>,
    /// Rows of the stream that get queries, where not all do.
    pub(super) kept: Vec<f32>,
    /// What attention gives.
    pub(super) attended: Vec<f32>,
    /// Between the halves of a feed-forward part.
    pub(super) gates: Activations,
}

impl Workspace {
    pub(super) fn begin(&mut self, batch: &Batch, config: &ModelConfig) {
        self.rows.clear();
        for span in &batch.spans {
            let positions = batch.positions.get(span.rows.clone()).unwrap_or_default();
            self.rows
                .extend(positions.iter().map(|&position| AttentionRow {
                    table: span.table.clone(),
                    position: position as usize,
                }));
        }
        self.x.resize(batch.rows() * config.dim, 0.0);
    }

    /// From here on only the `wanted` rows go on.
    pub(super) fn keep_rows(&mut self, wanted: &[u32], dim: usize) {
        let mut next = 0;
        let mut row = 0;
        self.rows.retain(|_| {
            let keep = wanted
                .get(next)
                .is_some_and(|&wanted| wanted as usize == row);
            next += usize::from(keep);
            row += 1;
            keep
        });
        // Wanted rows ascend, so each moves to a place that is free.
        for (place, &row) in wanted.iter().enumerate() {
            let start = row as usize * dim;
            self.x.copy_within(start..start + dim, place * dim);
        }
        self.x.truncate(wanted.len() * dim);
    }
}

/// Copies the `wanted` rows of length `len` to `out`.
pub(super) fn gather(from: &[f32], len: usize, wanted: &[u32], out: &mut Vec<f32>) {
    out.clear();
    for &row in wanted {
        let start = row as usize * len;
        out.extend_from_slice(from.get(start..start + len).unwrap_or_default());
    }
}
