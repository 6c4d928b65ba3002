//! What products are multiplied with, and who encodes it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::activations::{Activations, ActivationsWriter, Encodings, Tiling};
use crate::blocks::BLOCK;
use crate::compute::Compute;
use crate::norm::Norm;
use crate::prefetch::{LINE, prefetch_far};
use crate::tier::Tier;

/// Rows are encoded by every thread for itself if they have fewer values than this: encoding them takes less time
/// than handing them over.
const SHARED_VALUES: usize = 1 << 14;

/// Values that are encoded at a time, and the weights that memory delivers meanwhile.
const PIECE: usize = 4 * BLOCK;
const BYTES_A_PIECE: usize = 16 * LINE;

/// What products are multiplied with: `[m][cols]`.
#[derive(Clone, Copy)]
pub enum Input<'a> {
    /// Rows as they are. Values must be finite for a meaningful result.
    Rows(&'a [f32]),
    /// Rows that are normalised first.
    Normed(&'a [f32], Norm<'a>),
    /// What [`gated`](super::gated) wrote for the matrix that it was told of.
    Encoded(&'a Activations),
}

impl<'a> Input<'a> {
    /// Makes sure that every thread can have it in the `encodings`. With many rows they are encoded now, by all
    /// threads into `shared`.
    pub(super) fn prepare(
        self,
        compute: &Compute,
        shared: &'a mut Activations,
        tiling: Tiling,
        cols: usize,
        encodings: Encodings,
    ) -> Prepared<'a> {
        let (x, norm) = match self {
            Input::Rows(x) => (x, None),
            Input::Normed(x, norm) => (x, Some(norm)),
            Input::Encoded(activations) => {
                assert!(
                    activations.tiling() == tiling
                        && activations.cols() == cols
                        && activations.encodings().contain(encodings),
                    "the input was encoded for another product"
                );
                return Prepared::Shared(activations);
            }
        };
        let m = tiling.rows();
        assert!(
            x.len() == m * cols,
            "the input has {} values, not {m} rows of {cols}",
            x.len()
        );
        let rows = Rows { x, cols, norm };
        if x.len() < SHARED_VALUES {
            static NEXT: AtomicU64 = AtomicU64::new(1);
            return Prepared::Own {
                number: NEXT.fetch_add(1, Ordering::Relaxed),
                rows,
                tiling,
                encodings,
            };
        }
        let writer = shared.begin(compute.tier(), tiling, cols, encodings);
        compute.run(m, |row| {
            OWN.with_borrow_mut(|own| {
                rows.encode(compute.tier(), row, &mut own.normed, &writer, |_| ());
            });
        });
        Prepared::Shared(shared)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    x: &'a [f32],
    cols: usize,
    norm: Option<Norm<'a>>,
}

impl Rows<'_> {
    /// Encodes one row; calls `between` with the values that came before every piece of it.
    fn encode(
        self,
        tier: Tier,
        row: usize,
        normed: &mut Vec<f32>,
        writer: &ActivationsWriter<'_>,
        between: impl Fn(usize),
    ) {
        let mut values = &self.x[row * self.cols..][..self.cols];
        if let Some(norm) = self.norm {
            normed.resize(self.cols, 0.0);
            norm.apply(tier, values, normed);
            values = normed;
        }
        for (index, piece) in values.chunks(PIECE).enumerate() {
            between(row * self.cols + index * PIECE);
            // SAFETY: every row is written by one thread; tiers in use are those that the machine has.
            unsafe { writer.write(row, index * PIECE, piece) };
        }
    }
}

/// An input that every thread can have in encoded form.
pub(super) enum Prepared<'a> {
    Shared(&'a Activations),
    Own {
        /// Of this input; no other ever has the same.
        number: u64,
        rows: Rows<'a>,
        tiling: Tiling,
        encodings: Encodings,
    },
}

/// What one thread has encoded for itself.
#[derive(Default)]
struct Own {
    /// Of the input that the activations are of.
    number: u64,
    activations: Activations,
    /// One row between its norm and its encoding.
    normed: Vec<f32>,
}

thread_local! {
    static OWN: RefCell<Own> = RefCell::default();
}

impl Prepared<'_> {
    /// Calls `work` with the encoded rows. It will first read the weights `at`: they are on their way while rows are encoded.
    pub(super) fn with(&self, tier: Tier, at: *const u8, work: impl FnOnce(&Activations)) {
        let (number, rows, tiling, encodings) = match *self {
            Prepared::Shared(activations) => {
                if activations.tiling().tiles() == 1 {
                    activations.ask_for_first_blocks();
                }
                return work(activations);
            }
            Prepared::Own {
                number,
                rows,
                tiling,
                encodings,
            } => (number, rows, tiling, encodings),
        };
        OWN.with_borrow_mut(|own| {
            if own.number != number {
                let writer = own.activations.begin(tier, tiling, rows.cols, encodings);
                let ask_ahead = |before: usize| {
                    let place = before / PIECE * BYTES_A_PIECE;
                    prefetch_far(at.wrapping_add(place), BYTES_A_PIECE);
                };
                for row in 0..tiling.rows() {
                    rows.encode(tier, row, &mut own.normed, &writer, ask_ahead);
                }
                own.number = number;
            }
            work(&own.activations);
        });
    }
}
