//! Input rows in the encodings that packed weights are multiplied with.
//!
//! Rows are grouped into tiles of up to eight, and a tile's rows are interleaved: what a kernel needs at one place
//! along the inputs lies in a few neighbouring cache lines. (Rows of their own, a power of two apart, would fight
//! for the same cache sets.) The last tile is padded with zero rows to the next width that kernels exist for.

use half::bf16;

use crate::blocks::BLOCK;
use crate::compute::Compute;
use crate::format::Format;
use crate::lanes::{LANES, Lanes};
use crate::panels::TILE_WIDTHS;
use crate::shared_out::SharedOut;
use crate::tier::{Tier, tiered};

/// The largest value of a quantised activation. Not 128: AVX2 negates them.
const LARGEST_QUANT: f32 = 127.0;
/// Blocks whose largest value is below this count as zero; its inverse would leave f32.
const SMALLEST_BLOCK: f32 = 1e-30;
/// Rows are encoded by one thread if they have fewer values than this: waking another costs more.
const PARALLEL_VALUES: usize = 1 << 14;

/// What belongs to one block of 32 quantised activations.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct BlockFactors {
    /// Value of a quant of one.
    pub(crate) scale: f32,
    /// `scale` times `negative_sum`.
    pub(crate) scaled_negative_sum: f32,
    /// Minus the sum of the block's quants, for weights with an offset.
    pub(crate) negative_sum: i32,
    /// The same for the first and the second sixteen.
    pub(crate) negative_half_sums: [i32; 2],
}

/// Which encoding a weight format is multiplied with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Floats,
    Bf16Pairs,
    Blocks,
}

impl Encoding {
    pub(crate) fn for_weights(format: Format) -> Encoding {
        match format {
            Format::F32 | Format::F16 => Encoding::Floats,
            Format::Bf16 => Encoding::Bf16Pairs,
            Format::Q8_0 | Format::Q4_0 | Format::Q4K | Format::Q6K => Encoding::Blocks,
        }
    }
}

/// Rows that a kernel multiplies together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowTile {
    pub(crate) first_row: usize,
    /// Rows with padding: one of [`TILE_WIDTHS`].
    pub(crate) width: usize,
    /// Rows without padding.
    pub(crate) rows: usize,
}

/// How rows are grouped into tiles.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tiling {
    rows: usize,
    width: usize,
}

impl Tiling {
    pub(crate) fn new(tier: Tier, rows: usize) -> Tiling {
        // As many rows as the tier has registers to hold sums for.
        let width = match tier {
            Tier::Avx512 => 8,
            Tier::Avx2 => 2,
            Tier::Scalar => 4,
        };
        Tiling { rows, width }
    }

    /// Rows of a full tile.
    pub(crate) fn width(self) -> usize {
        self.width
    }

    pub(crate) fn tiles(self) -> usize {
        self.rows.div_ceil(self.width)
    }

    pub(crate) fn tile(self, index: usize) -> RowTile {
        let first_row = index * self.width;
        let rows = (self.rows - first_row).min(self.width);
        let width = TILE_WIDTHS
            .into_iter()
            .find(|width| *width >= rows)
            .unwrap_or(self.width);
        RowTile {
            first_row,
            width,
            rows,
        }
    }

    fn padded_rows(self) -> usize {
        match self.tiles() {
            0 => 0,
            tiles => (tiles - 1) * self.width + self.tile(tiles - 1).width,
        }
    }
}

/// Encoded rows; the buffers are kept from call to call.
#[derive(Default)]
pub(crate) struct Activations {
    tiling: Tiling,
    cols: usize,
    floats: Vec<f32>,
    pairs: Vec<u32>,
    quants: Vec<i8>,
    factors: Vec<BlockFactors>,
}

impl Activations {
    /// Starts anew with other rows.
    pub(crate) fn reset(&mut self, tiling: Tiling, cols: usize) {
        self.tiling = tiling;
        self.cols = cols;
    }

    /// Encodes `x`, `[rows][cols]`, for one kind of weights. Values must be finite for a meaningful result.
    pub(crate) fn encode(&mut self, compute: &Compute, encoding: Encoding, x: &[f32]) {
        let (tiling, cols) = (self.tiling, self.cols);
        let padded = tiling.padded_rows();
        let rows = tiling.rows;
        let for_each_row = |write: &(dyn Fn(usize, RowTile) + Sync)| {
            let place = |row: usize| {
                let tile = tiling.tile((row / tiling.width).min(tiling.tiles() - 1));
                write(row, tile);
            };
            if rows * cols < PARALLEL_VALUES {
                (0..padded).for_each(place)
            } else {
                compute.run(padded, place)
            }
        };
        let row_values = |row: usize| {
            if row < rows {
                &x[row * cols..][..cols]
            } else {
                &[]
            }
        };
        match encoding {
            Encoding::Floats => {
                self.floats.resize(padded * cols, 0.0);
                let out = SharedOut::new(&mut self.floats);
                for_each_row(&|row, tile| {
                    // SAFETY: rows of a tile share its part, but each writes places of its own.
                    unsafe {
                        interleave(&out, tile, row, cols, row_values(row).iter().copied(), 0.0)
                    };
                });
            }
            Encoding::Bf16Pairs => {
                let pairs = cols.div_ceil(2);
                self.pairs.resize(padded * pairs, 0);
                let out = SharedOut::new(&mut self.pairs);
                for_each_row(&|row, tile| {
                    let values = row_values(row).chunks(2).map(bf16_pair);
                    // SAFETY: as above.
                    unsafe { interleave(&out, tile, row, pairs, values, 0) };
                });
            }
            Encoding::Blocks => {
                let blocks = cols / BLOCK;
                self.quants.resize(padded * cols, 0);
                self.factors
                    .resize(padded * blocks, BlockFactors::default());
                let quants = SharedOut::new(&mut self.quants);
                let factors = SharedOut::new(&mut self.factors);
                for_each_row(&|row, tile| {
                    let lane = row - tile.first_row;
                    if row < rows {
                        let at = tile.first_row * blocks + lane;
                        let x = row_values(row);
                        // SAFETY: the machine has the tier, and the row's blocks lie `width` blocks apart from `at`.
                        unsafe {
                            let quants = quants.pointer(at * BLOCK);
                            encode_blocks(
                                compute.tier(),
                                x,
                                quants,
                                factors.pointer(at),
                                tile.width,
                            );
                        }
                        return;
                    }
                    for block in 0..blocks {
                        let at = tile.first_row * blocks + block * tile.width + lane;
                        // SAFETY: each row writes blocks of its own, of which `at` is the index.
                        let (quants, factors) =
                            unsafe { (quants.part(at * BLOCK, BLOCK), factors.part(at, 1)) };
                        quants.fill(0);
                        factors[0] = BlockFactors::default();
                    }
                });
            }
        }
    }

    /// The values of a tile from input `from` on, in the encoding for `format`.
    pub(crate) fn values(&self, format: Format, tile: RowTile, from: usize) -> *const u8 {
        match Encoding::for_weights(format) {
            Encoding::Floats => self.floats[tile.first_row * self.cols + from * tile.width..]
                .as_ptr()
                .cast(),
            Encoding::Bf16Pairs => self.pairs
                [tile.first_row * self.cols.div_ceil(2) + from / 2 * tile.width..]
                .as_ptr()
                .cast(),
            Encoding::Blocks => self.quants[tile.first_row * self.cols + from * tile.width..]
                .as_ptr()
                .cast(),
        }
    }

    /// The block factors of a tile from input `from` on; meaningful for the quantised formats only.
    pub(crate) fn factors(
        &self,
        format: Format,
        tile: RowTile,
        from: usize,
    ) -> *const BlockFactors {
        match Encoding::for_weights(format) {
            Encoding::Floats | Encoding::Bf16Pairs => std::ptr::null(),
            Encoding::Blocks => {
                let at = tile.first_row * (self.cols / BLOCK) + from / BLOCK * tile.width;
                self.factors[at..].as_ptr()
            }
        }
    }
}

fn bf16_pair(values: &[f32]) -> u32 {
    let bits = |i: usize| {
        values
            .get(i)
            .map_or(0, |value| u32::from(bf16::from_f32(*value).to_bits()))
    };
    bits(0) | bits(1) << 16
}

/// Writes a row's values into its lane of a tile; values that are missing are `padding`.
///
/// # Safety
/// No other thread may write the same row meanwhile.
unsafe fn interleave<T: Copy>(
    out: &SharedOut<'_, T>,
    tile: RowTile,
    row: usize,
    len: usize,
    values: impl Iterator<Item = T>,
    padding: T,
) {
    let start = out.pointer(tile.first_row * len + (row - tile.first_row));
    for (i, value) in values
        .chain(std::iter::repeat(padding))
        .take(len)
        .enumerate()
    {
        *start.add(i * tile.width) = value;
    }
}

tiered!(fn encode_blocks(x: &[f32], quants: *mut i8, factors: *mut BlockFactors, width: usize) = encode_blocks_with);

/// Quantises one row; its blocks and their factors are written `width` places apart.
#[inline(always)]
unsafe fn encode_blocks_with<L: Lanes>(
    x: &[f32],
    quants: *mut i8,
    factors: *mut BlockFactors,
    width: usize,
) {
    for (index, block) in x.chunks_exact(BLOCK).enumerate() {
        let quants = quants.add(index * width * BLOCK);
        let values = [L::load(block.as_ptr()), L::load(block.as_ptr().add(LANES))];
        let largest = values[0].abs().max(values[1].abs()).largest();
        let live = largest >= SMALLEST_BLOCK;
        let inverse = L::splat(if live { LARGEST_QUANT / largest } else { 0.0 });
        let mut negative_half_sums = [0; 2];
        for (half, values) in values.into_iter().enumerate() {
            let rounded = values.mul(inverse).round();
            rounded.store_i8(quants.add(half * LANES));
            // Sums of so few small integers are exact.
            negative_half_sums[half] = -(rounded.sum() as i32);
        }
        let scale = if live { largest / LARGEST_QUANT } else { 0.0 };
        let negative_sum = negative_half_sums[0] + negative_half_sums[1];
        *factors.add(index * width) = BlockFactors {
            scale,
            scaled_negative_sum: scale * negative_sum as f32,
            negative_sum,
            negative_half_sums,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_tile_is_padded_to_a_width_that_kernels_exist_for() {
        for tier in Tier::ALL {
            for rows in 1..40 {
                let tiling = Tiling::new(tier, rows);
                let tiles: Vec<RowTile> = (0..tiling.tiles()).map(|i| tiling.tile(i)).collect();
                assert_eq!(tiles.iter().map(|tile| tile.rows).sum::<usize>(), rows);
                assert_eq!(
                    tiles.iter().map(|tile| tile.width).sum::<usize>(),
                    tiling.padded_rows()
                );
                assert!(
                    tiles
                        .iter()
                        .all(|tile| tile.width >= tile.rows && TILE_WIDTHS.contains(&tile.width))
                );
            }
        }
    }

    #[test]
    fn quants_stay_within_half_a_step_of_their_values() {
        let x: Vec<f32> = (0..64).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
        let (mut quants, mut factors) = (vec![0; 64], vec![BlockFactors::default(); 2]);
        // SAFETY: the scalar tier runs anywhere, and the buffers hold two blocks.
        unsafe {
            encode_blocks(
                Tier::Scalar,
                &x,
                quants.as_mut_ptr(),
                factors.as_mut_ptr(),
                1,
            )
        };
        for (i, value) in x.iter().enumerate() {
            let scale = factors[i / 32].scale;
            assert!((f32::from(quants[i]) * scale - value).abs() <= scale * 0.501);
        }
        let sum: i32 = quants[..32].iter().map(|quant| i32::from(*quant)).sum();
        assert_eq!(factors[0].negative_sum, -sum);
    }
}
