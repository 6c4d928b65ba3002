//! Input rows in the encodings that packed weights are multiplied with.
//!
//! Rows are grouped into tiles of up to eight, and a tile's rows are interleaved: what a kernel needs at one place
//! along the inputs lies in a few neighbouring cache lines. (Rows of their own, a power of two apart, would fight
//! for the same cache sets.) The last tile is padded with zero rows to the next width that kernels exist for.

mod encode;
mod tiling;

use crate::blocks::BLOCK;
use crate::format::Format;
use crate::shared_out::SharedOut;
use crate::tier::Tier;
use encode::{bf16_pair, encode_blocks};

pub(crate) use tiling::{RowTile, Tiling};

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
enum Encoding {
    Floats,
    Bf16Pairs,
    Blocks,
}

impl Encoding {
    fn for_weights(format: Format) -> Encoding {
        match format {
            Format::F32 | Format::F16 => Encoding::Floats,
            Format::Bf16 => Encoding::Bf16Pairs,
            Format::Q8_0 | Format::Q4_0 | Format::Q4K | Format::Q6K => Encoding::Blocks,
        }
    }
}

/// The encodings that some matrices need.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Encodings {
    floats: bool,
    bf16_pairs: bool,
    blocks: bool,
}

impl Encodings {
    pub(crate) fn for_weights(formats: impl Iterator<Item = Format>) -> Encodings {
        formats.fold(Encodings::default(), |encodings, format| {
            let encoding = Encoding::for_weights(format);
            Encodings {
                floats: encodings.floats || encoding == Encoding::Floats,
                bf16_pairs: encodings.bf16_pairs || encoding == Encoding::Bf16Pairs,
                blocks: encodings.blocks || encoding == Encoding::Blocks,
            }
        })
    }

    pub(crate) fn contain(self, other: Encodings) -> bool {
        self.floats >= other.floats
            && self.bf16_pairs >= other.bf16_pairs
            && self.blocks >= other.blocks
    }
}

/// Encoded rows; the buffers are kept from use to use.
#[derive(Default)]
pub struct Activations {
    tiling: Tiling,
    cols: usize,
    encodings: Encodings,
    floats: Vec<f32>,
    pairs: Vec<u32>,
    quants: Vec<i8>,
    factors: Vec<BlockFactors>,
}

impl Activations {
    /// Starts anew with other rows, all of which must then be written.
    pub(crate) fn begin(
        &mut self,
        tier: Tier,
        tiling: Tiling,
        cols: usize,
        encodings: Encodings,
    ) -> ActivationsWriter<'_> {
        let padded = tiling.padded_rows();
        let room = |wanted: bool, len: usize| if wanted { padded * len } else { 0 };
        self.tiling = tiling;
        self.cols = cols;
        self.encodings = encodings;
        self.floats.resize(room(encodings.floats, cols), 0.0);
        self.pairs
            .resize(room(encodings.bf16_pairs, cols.div_ceil(2)), 0);
        self.quants.resize(room(encodings.blocks, cols), 0);
        let no_factors = BlockFactors::default();
        self.factors
            .resize(room(encodings.blocks, cols / BLOCK), no_factors);
        let writer = ActivationsWriter {
            tier,
            tiling,
            cols,
            encodings,
            floats: SharedOut::new(&mut self.floats),
            pairs: SharedOut::new(&mut self.pairs),
            quants: SharedOut::new(&mut self.quants),
            factors: SharedOut::new(&mut self.factors),
        };
        for row in tiling.rows()..padded {
            for from in (0..cols).step_by(BLOCK) {
                // SAFETY: nobody else writes yet.
                unsafe { writer.write(row, from, &[0.0; BLOCK][..BLOCK.min(cols - from)]) };
            }
        }
        writer
    }

    pub(crate) fn tiling(&self) -> Tiling {
        self.tiling
    }

    /// Values of a row.
    pub(crate) fn cols(&self) -> usize {
        self.cols
    }

    pub(crate) fn encodings(&self) -> Encodings {
        self.encodings
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

/// Fills activations, from any number of threads.
pub(crate) struct ActivationsWriter<'a> {
    tier: Tier,
    tiling: Tiling,
    cols: usize,
    encodings: Encodings,
    floats: SharedOut<'a, f32>,
    pairs: SharedOut<'a, u32>,
    quants: SharedOut<'a, i8>,
    factors: SharedOut<'a, BlockFactors>,
}

impl ActivationsWriter<'_> {
    /// Encodes `values`, which stand in `row` from input `from` on: a multiple of 32, as their number must be unless
    /// they are the row's last. They must be finite for a meaningful result.
    ///
    /// # Safety
    /// The machine must have the writer's tier, and no other thread may write the same part of the row meanwhile.
    pub(crate) unsafe fn write(&self, row: usize, from: usize, values: &[f32]) {
        let tile = self.tiling.tile_of(row);
        let lane = row - tile.first_row;
        assert!(
            from.is_multiple_of(BLOCK) && from + values.len() <= self.cols,
            "{} values at {from} of {}",
            values.len(),
            self.cols
        );
        if self.encodings.floats {
            let start = tile.first_row * self.cols + from * tile.width + lane;
            interleave(&self.floats, start, tile.width, values.iter().copied());
        }
        if self.encodings.bf16_pairs {
            let pairs = self.cols.div_ceil(2);
            let start = tile.first_row * pairs + from / 2 * tile.width + lane;
            interleave(
                &self.pairs,
                start,
                tile.width,
                values.chunks(2).map(bf16_pair),
            );
        }
        if self.encodings.blocks {
            let at = tile.first_row * (self.cols / BLOCK) + from / BLOCK * tile.width + lane;
            let quants = self.quants.pointer(at * BLOCK);
            encode_blocks(
                self.tier,
                values,
                quants,
                self.factors.pointer(at),
                tile.width,
            );
        }
    }
}

/// Writes values `stride` places apart.
///
/// # Safety
/// The places must lie in `out`, and no other thread may write the same ones meanwhile.
unsafe fn interleave<T: Copy>(
    out: &SharedOut<'_, T>,
    start: usize,
    stride: usize,
    values: impl Iterator<Item = T>,
) {
    let start = out.pointer(start);
    for (i, value) in values.enumerate() {
        *start.add(i * stride) = value;
    }
}
