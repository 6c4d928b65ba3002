//! Products of input rows with packed weights: how the work is cut, which never changes what comes out.

use std::mem::MaybeUninit;

use crate::activations::{Activations, Encoding, RowTile, Tiling};
use crate::attention::AttentionScratch;
use crate::compute::Compute;
use crate::matrix::Matrix;
use crate::panels::{PANEL_ROWS, PREFETCH_AHEAD, Stretch, Unit, accumulate};
use crate::shared_out::SharedOut;

/// Rows whose sums are held at once: a stretch of weights is used for all of them while it is in the first-level
/// cache, and their sums fit there too.
const STRIP_ROWS: usize = 64;
/// Inputs in a stretch, if there is more than one tile of rows to use it for.
const STRETCH_LEN: usize = 1024;
/// Chunks for each thread, so that one that is slow can take fewer.
const CHUNKS_PER_THREAD: usize = 16;
/// Weights in a chunk: enough to be worth handing out.
const SMALLEST_CHUNK_BYTES: usize = 32 << 10;

/// Buffers for activations and partial results, reused from call to call.
#[derive(Default)]
pub struct Scratch {
    activations: Activations,
    pub(crate) attention: AttentionScratch,
}

/// One matrix and where its products go.
pub struct Product<'a> {
    /// The weights.
    pub matrix: &'a Matrix,
    /// `[m][matrix.rows()]`.
    pub out: &'a mut [f32],
}

/// A product's place in the loop over all of them.
struct Job<'a> {
    matrix: &'a Matrix,
    out: SharedOut<'a, f32>,
    /// Units of a panel.
    units: usize,
    panels_per_chunk: usize,
    panel_chunks: usize,
}

/// Computes `out[m][rows] = x[m][cols] * W^T` for every product. All share `x`, so that query, key and value, or
/// gate and up, are one loop with one wait at its end. A row's result does not depend on the other rows.
///
/// # Panics
/// If a matrix's columns, or the length of `x` or of an output, do not fit `m`.
pub fn matmul(
    compute: &Compute,
    scratch: &mut Scratch,
    x: &[f32],
    m: usize,
    products: &mut [Product<'_>],
) {
    let Some(first) = products.first() else {
        return;
    };
    let cols = first.matrix.cols();
    assert!(
        x.len() == m * cols,
        "x has {} values, not {m} rows of {cols}",
        x.len()
    );
    for product in &*products {
        let (rows, out) = (product.matrix.rows(), product.out.len());
        assert!(
            product.matrix.cols() == cols,
            "products share x, but take {cols} and {} inputs",
            product.matrix.cols()
        );
        assert!(
            out == m * rows,
            "out has {out} values, not {m} rows of {rows}"
        );
    }
    if m == 0 {
        return;
    }
    let tiling = Tiling::new(compute.tier(), m);
    let activations = &mut scratch.activations;
    activations.reset(tiling, cols);
    for encoding in [Encoding::Floats, Encoding::Bf16Pairs, Encoding::Blocks] {
        if products
            .iter()
            .any(|product| Encoding::for_weights(product.matrix.format()) == encoding)
        {
            activations.encode(compute, encoding, x);
        }
    }
    let total_bytes: usize = products.iter().map(|product| product.matrix.bytes()).sum();
    let chunk_bytes =
        (total_bytes / (compute.threads() * CHUNKS_PER_THREAD)).max(SMALLEST_CHUNK_BYTES);
    let jobs: Vec<Job<'_>> = products
        .iter_mut()
        .map(|product| Job::new(product, chunk_bytes, m))
        .collect();
    let panel_chunks: usize = jobs.iter().map(|job| job.panel_chunks).sum();
    let tiles: Vec<RowTile> = (0..tiling.tiles()).map(|i| tiling.tile(i)).collect();
    let strips: Vec<&[RowTile]> = tiles.chunks(STRIP_ROWS / tiling.width()).collect();
    // Rows are cut as well where there are fewer chunks of panels than the threads want.
    let row_cuts = (compute.threads() * CHUNKS_PER_THREAD)
        .div_ceil(panel_chunks)
        .min(strips.len());
    let strips_per_cut = strips.len().div_ceil(row_cuts);
    let strips_of_cuts: Vec<&[&[RowTile]]> = strips.chunks(strips_per_cut).collect();
    let row_cuts = strips_of_cuts.len();
    compute.run(panel_chunks * row_cuts, |chunk| {
        let (mut panel_chunk, cut) = (chunk / row_cuts, chunk % row_cuts);
        let mut sums = [const { MaybeUninit::uninit() }; STRIP_ROWS];
        for job in &jobs {
            if panel_chunk < job.panel_chunks {
                let first_panel = panel_chunk * job.panels_per_chunk;
                let last_panel = job.matrix.panels().min(first_panel + job.panels_per_chunk);
                for panel in first_panel..last_panel {
                    for strip in strips_of_cuts[cut] {
                        job.multiply(compute, activations, panel, strip, &mut sums);
                    }
                }
                return;
            }
            panel_chunk -= job.panel_chunks;
        }
    });
}

impl<'a> Job<'a> {
    fn new(product: &'a mut Product<'_>, chunk_bytes: usize, m: usize) -> Job<'a> {
        let matrix = product.matrix;
        // With many rows a single panel is work enough.
        let panels = if m > STRIP_ROWS {
            1
        } else {
            (chunk_bytes / matrix.panel_bytes()).max(1)
        };
        Job {
            matrix,
            out: SharedOut::new(product.out),
            units: matrix.panel_bytes() / Unit::of(matrix.format()).bytes,
            panels_per_chunk: panels,
            panel_chunks: matrix.panels().div_ceil(panels),
        }
    }

    /// Multiplies one panel with one strip of rows; `sums` is room for their results.
    fn multiply(
        &self,
        compute: &Compute,
        activations: &Activations,
        panel: usize,
        strip: &[RowTile],
        sums: &mut [MaybeUninit<[f32; PANEL_ROWS]>; STRIP_ROWS],
    ) {
        let format = self.matrix.format();
        let weights = self.matrix.panel(panel);
        let unit = Unit::of(format);
        let units = self.units;
        let units_per_stretch = if strip.len() > 1 {
            (STRETCH_LEN / unit.len).max(1)
        } else {
            units
        };
        let first_col = panel * PANEL_ROWS;
        let cols = (self.matrix.rows() - first_col).min(PANEL_ROWS);
        let first_row = strip.first().map_or(0, |tile| tile.first_row);
        // Sums that are complete at once, with nothing that pads them, need not be collected.
        let direct = |tile: &RowTile| {
            units_per_stretch >= units && tile.rows == tile.width && cols == PANEL_ROWS
        };
        for first in (0..units).step_by(units_per_stretch) {
            let weights = &weights[first * unit.bytes..];
            for tile in strip {
                let (sums, sums_stride) = if direct(tile) {
                    // SAFETY: each panel and strip writes its own columns of its own rows, once.
                    let out = unsafe { self.out.pointer(self.place(tile.first_row, first_col)) };
                    (out, self.matrix.rows())
                } else {
                    let sums = &mut sums[tile.first_row - first_row..];
                    (sums.as_mut_ptr().cast(), PANEL_ROWS)
                };
                let stretch = Stretch {
                    weights: weights.as_ptr(),
                    units: (units - first).min(units_per_stretch),
                    values: activations.values(format, *tile, first * unit.len),
                    factors: activations.factors(format, *tile, first * unit.len),
                    sums,
                    sums_stride,
                    adds: first > 0,
                    ahead: if tile.first_row == 0 {
                        PREFETCH_AHEAD
                    } else {
                        0
                    },
                };
                // SAFETY: `Compute` runs only tiers that the machine has. The panel holds `units` units; the
                // activations were encoded for this tiling and format; there are `width` rows of sums, in the
                // strip or in the output.
                unsafe { accumulate(compute.tier(), format, tile.width, stretch) };
            }
        }
        for tile in strip.iter().filter(|tile| !direct(tile)) {
            for row in tile.first_row..tile.first_row + tile.rows {
                // SAFETY: as above; the tile's first stretch wrote sums for all of its rows.
                let (out, sums) = unsafe {
                    (
                        self.out.part(self.place(row, first_col), cols),
                        sums[row - first_row].assume_init_ref(),
                    )
                };
                out.copy_from_slice(&sums[..cols]);
            }
        }
    }

    /// Where a row's column lies in the output.
    fn place(&self, row: usize, col: usize) -> usize {
        row * self.matrix.rows() + col
    }
}
