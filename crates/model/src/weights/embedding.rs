//! Rows of the embedding, read from the file when they are needed.
//!
//! A step needs a row for each of its tokens and nothing else, so the embedding is not packed: it
//! stays in the mapped file and costs only the pages that were touched. Those are given back again and
//! again, or a long run would hold the whole tensor besides the packed output matrix. The file stays in
//! the system's cache, so reading a row anew costs about a microsecond.

use std::sync::atomic::{AtomicUsize, Ordering};

use kernels::dequantize;

use super::checkpoint::Stored;

/// Rows read between two times of giving pages back. Linux maps up to 64 KiB around a page that is touched,
/// so this is at most 4 MiB.
const ROWS_KEPT: usize = 64;

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
            if self.rows_read.fetch_add(1, Ordering::Relaxed) % ROWS_KEPT == ROWS_KEPT - 1 {
                self.tensor.forget();
            }
        }
    }
}
