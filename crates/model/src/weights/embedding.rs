//! Rows of the embedding, read from the file when they are needed.
//!
//! A step needs a row for each of its tokens and nothing else, so the embedding is not packed: it
//! stays in the mapped file and costs only the pages that were touched. Those are given back again and
//! again, or a long run would hold the whole tensor besides the packed output matrix. The file stays in
//! the system's cache, so reading a row anew costs about a microsecond.

use std::sync::atomic::{AtomicUsize, Ordering};

use kernels::dequantize;

use super::checkpoint::Stored;

/// What may stay mapped. A tensor that is no larger is never given back: reading its rows anew took 2 % of a step of a
/// small model that verifies drafts.
const KEPT_BYTES: usize = 4 << 20;
/// Linux maps up to so much around a page that is touched.
const BYTES_AROUND: usize = 64 << 10;
/// Rows read between two times of giving pages back.
const ROWS_KEPT: usize = KEPT_BYTES / BYTES_AROUND;

pub(crate) struct Embedding {
    tensor: Stored,
    rows_read: AtomicUsize,
}

impl Embedding {
    pub(super) fn new(tensor: Stored) -> Self {
        Self {
            tensor,
            rows_read: AtomicUsize::new(0),
        }
    }

    /// Writes the rows of `tokens` one after another into `out`. All tokens are below the vocabulary's
    /// size.
    pub(crate) fn look_up(&self, tokens: &[u32], out: &mut [f32]) {
        let columns = self.tensor.columns();
        for (&token, out) in tokens.iter().zip(out.chunks_exact_mut(columns)) {
            dequantize(self.tensor.format(), self.tensor.row(token as usize), out);
            if self.tensor.bytes().len() > KEPT_BYTES
                && self.rows_read.fetch_add(1, Ordering::Relaxed) % ROWS_KEPT == ROWS_KEPT - 1
            {
                self.tensor.forget();
            }
        }
    }
}
