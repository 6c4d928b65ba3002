//! Products of input rows with packed weights: how the work is cut, which never changes what comes out.
//!
//! What happens to single values before and after the products happens here too, on the thread that has them in its
//! cache: with few rows, carrying them from core to core takes longer than the arithmetic on them.

mod cuts;
mod gated;
mod input;
mod panel;

use crate::activations::{Activations, Encodings, Tiling};
use crate::attention::AttentionScratch;
use crate::compute::Compute;
use crate::matrix::Matrix;
use crate::shared_out::SharedOut;
use cuts::{Cuts, PanelSet};
use panel::{Piece, Sums, SumsPlace};

pub use gated::gated;
pub use input::Input;

/// Buffers for activations and partial results, reused from call to call.
#[derive(Default)]
pub struct Scratch {
    activations: Activations,
    pub(crate) attention: AttentionScratch,
}

/// One matrix and where its products go.
pub struct Product<'a> {
    matrix: &'a Matrix,
    bias: Option<&'a [f32]>,
    out: &'a mut [f32],
    adds: bool,
}

impl<'a> Product<'a> {
    /// Writes the products with `matrix` to `out`, `[m][matrix.rows()]`.
    pub fn new(matrix: &'a Matrix, out: &'a mut [f32]) -> Self {
        Product {
            matrix,
            bias: None,
            out,
            adds: false,
        }
    }

    /// Adds `bias` to every row's products.
    #[must_use]
    pub fn with_bias(self, bias: Option<&'a [f32]>) -> Self {
        Product { bias, ..self }
    }

    /// Adds the results to what stands in `out`.
    #[must_use]
    pub fn added(self) -> Self {
        Product { adds: true, ..self }
    }
}

/// Computes `out[m][rows] = input[m][cols] * W^T` for every product. All share the input, so that query, key and
/// value are one loop with one wait at its end. A row's result does not depend on the other rows.
///
/// # Panics
/// If a matrix's columns, or the length of the input, of a bias or of an output, do not fit `m`.
pub fn matmul(
    compute: &Compute,
    scratch: &mut Scratch,
    input: Input<'_>,
    m: usize,
    products: &mut [Product<'_>],
) {
    let Some(first) = products.first() else {
        return;
    };
    let cols = first.matrix.cols();
    for product in &*products {
        product.check(cols, m);
    }
    if m == 0 {
        return;
    }
    let tiling = Tiling::new(compute.tier(), m);
    let formats = products.iter().map(|product| product.matrix.format());
    let encodings = Encodings::for_weights(formats);
    let input = input.prepare(compute, &mut scratch.activations, tiling, cols, encodings);
    let places: Vec<Place<'_>> = products.iter_mut().map(Place::new).collect();
    let panels = places.iter().map(|place| PanelSet::of(&[place.matrix]));
    Cuts::new(compute, tiling, panels).run(compute, |set, panels, strip| {
        let (place, tier) = (&places[set], compute.tier());
        let weights = place.matrix.panels_from(panels.start, panels.len());
        input.with(tier, weights.as_ptr(), |activations| {
            place.take(&Piece {
                tier,
                activations,
                matrix: place.matrix,
                panels,
                strip,
            });
        });
    });
}

impl Product<'_> {
    fn check(&self, cols: usize, m: usize) {
        let (rows, out) = (self.matrix.rows(), self.out.len());
        assert!(
            self.matrix.cols() == cols,
            "products share their input, but take {cols} and {} values",
            self.matrix.cols()
        );
        assert!(
            out == m * rows,
            "out has {out} values, not {m} rows of {rows}"
        );
        assert!(
            self.bias.is_none_or(|bias| bias.len() == rows),
            "a bias does not fit {rows} outputs"
        );
    }
}

/// A product whose output several threads write to.
struct Place<'a> {
    matrix: &'a Matrix,
    bias: Option<&'a [f32]>,
    out: SharedOut<'a, f32>,
    adds: bool,
}

impl<'a> Place<'a> {
    fn new(product: &'a mut Product<'_>) -> Place<'a> {
        Place {
            matrix: product.matrix,
            bias: product.bias,
            out: SharedOut::new(product.out),
            adds: product.adds,
        }
    }

    /// Multiplies a piece and takes over what comes out.
    fn take(&self, piece: &Piece<'_>) {
        let (first, stride) = (piece.first_output(), self.matrix.rows());
        if !self.adds && self.bias.is_none() && piece.is_full() {
            let start = piece.strip.rows().start * stride + first;
            // SAFETY: each piece of work writes its own outputs of its own rows, once, and all of them exist.
            unsafe {
                let first = self.out.pointer(start);
                piece.multiply_to(SumsPlace { first, stride });
            }
            return;
        }
        let mut sums = Sums::new();
        for (row, sums) in piece.strip.rows().zip(sums.multiply(piece)) {
            self.write(row, first, sums);
        }
    }

    /// Takes over one row's sums, which are of outputs from `first` on; those beyond the last are padding.
    fn write(&self, row: usize, first: usize, sums: &mut [f32]) {
        let len = (self.matrix.rows() - first).min(sums.len());
        // SAFETY: each piece of work writes its own outputs of its own rows, once.
        let out = unsafe { self.out.part(row * self.matrix.rows() + first, len) };
        if let Some(bias) = self.bias {
            for (sum, bias) in sums.iter_mut().zip(&bias[first..]) {
                *sum += bias;
            }
        }
        if self.adds {
            for (out, sum) in out.iter_mut().zip(sums) {
                *out += *sum;
            }
        } else {
            out.copy_from_slice(&sums[..len]);
        }
    }
}
