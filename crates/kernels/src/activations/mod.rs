//! Input rows in the encodings that packed weights are multiplied with.
//!
//! Rows are grouped into tiles of up to eight, and a tile's rows are interleaved: what a kernel needs at one place
//! along the inputs lies in a few neighbouring cache lines. (Rows of their own, a power of two apart, would fight
//! for the same cache sets.) The last tile is padded with zero rows to the next width that kernels exist for.

mod encode;
mod tiling;

use crate::blocks::BLOCK;
use crate::format::Format;
use crate::line_vec::{LineVec, Plain};
use crate::prefetch::prefetch_near;
use crate::shared_out::SharedOut;
use crate::tier::Tier;
use encode::{BlockPlaces, bf16_pair, encode_blocks};

pub(crate) use tiling::{RowTile, Tiling};

/// Quants that are asked for at once: half of a first-level cache.
const ASKED_FOR: usize = 16 << 10;

/// What belongs to one block of 32 quantised activations.
///
/// Those of a tile are read with every unit of weights, over and over. They are small and begin at a cache line, as the
/// quants do, because what does not stay in the first-level cache beside the weights makes their stream wait: with four
/// rows and weights from memory, factors of 20 bytes that began anywhere took a quarter more time.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct BlockFactors {
    /// Value of a quant of one.
    pub(crate) scale: f32,
    /// Minus 128 times the sum of the block's quants: what weights with an offset of 128 bring in.
    pub(crate) offset: i32,
}

// SAFETY: numbers.
unsafe impl Plain for BlockFactors {}

/// Sums over one block of quantised activations, for the formats that have minimums, or scales for half a block.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct BlockSums {
    /// Minus the sum of the block's values.
    pub(crate) scaled_negative: f32,
    /// Minus the sums of its first and of its second sixteen quants.
    pub(crate) negative_halves: [i32; 2],
}

// SAFETY: numbers.
unsafe impl Plain for BlockSums {}

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
    block_sums: bool,
}

impl Encodings {
    pub(crate) fn for_weights(formats: impl Iterator<Item = Format>) -> Encodings {
        formats.fold(Encodings::default(), |encodings, format| {
            let encoding = Encoding::for_weights(format);
            Encodings {
                floats: encodings.floats || encoding == Encoding::Floats,
                bf16_pairs: encodings.bf16_pairs || encoding == Encoding::Bf16Pairs,
                blocks: encodings.blocks || encoding == Encoding::Blocks,
                block_sums: encodings.block_sums || has_block_sums(format),
            }
        })
    }

    pub(crate) fn contain(self, other: Encodings) -> bool {
        self.floats >= other.floats
            && self.bf16_pairs >= other.bf16_pairs
            && self.blocks >= other.blocks
            && self.block_sums >= other.block_sums
    }
}

/// Whether products with a format take [`BlockSums`].
fn has_block_sums(format: Format) -> bool {
    matches!(format, Format::Q4K | Format::Q6K)
}

/// Encoded rows; the buffers are kept from use to use.
#[derive(Default)]
pub struct Activations {
    tiling: Tiling,
    cols: usize,
    encodings: Encodings,
    floats: LineVec<f32>,
    pairs: LineVec<u32>,
    quants: LineVec<i8>,
    factors: LineVec<BlockFactors>,
    sums: LineVec<BlockSums>,
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
        self.floats.resize(room(encodings.floats, cols));
        self.pairs
            .resize(room(encodings.bf16_pairs, cols.div_ceil(2)));
        self.quants.resize(room(encodings.blocks, cols));
        self.factors.resize(room(encodings.blocks, cols / BLOCK));
        self.sums.resize(room(encodings.block_sums, cols / BLOCK));
        let writer = ActivationsWriter {
            tier,
            tiling,
            cols,
            encodings,
            floats: SharedOut::new(&mut self.floats),
            pairs: SharedOut::new(&mut self.pairs),
            quants: SharedOut::new(&mut self.quants),
            factors: SharedOut::new(&mut self.factors),
            sums: SharedOut::new(&mut self.sums),
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

    /// Asks for the blocks that a product with a tile of rows begins with. What other threads wrote of them comes from their
    /// cores, and line by line, as products need them, each would be waited for.
    pub(crate) fn ask_for_first_blocks(&self) {
        let quants = self.quants.len().min(ASKED_FOR);
        prefetch_near(self.quants.as_ptr().cast(), quants);
        prefetch_near(
            self.factors.as_ptr().cast(),
            quants / BLOCK * size_of::<BlockFactors>(),
        );
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
            Encoding::Blocks => self.factors[first_block(self.cols, tile, from)..].as_ptr(),
        }
    }

    /// The same for the sums of blocks; for the formats that take them only.
    pub(crate) fn block_sums(
        &self,
        format: Format,
        tile: RowTile,
        from: usize,
    ) -> *const BlockSums {
        if has_block_sums(format) {
            self.sums[first_block(self.cols, tile, from)..].as_ptr()
        } else {
            std::ptr::null()
        }
    }
}

/// Where the blocks of a tile begin that stand at input `from`.
fn first_block(cols: usize, tile: RowTile, from: usize) -> usize {
    tile.first_row * (cols / BLOCK) + from / BLOCK * tile.width
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
    sums: SharedOut<'a, BlockSums>,
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
            let at = first_block(self.cols, tile, from) + lane;
            let places = BlockPlaces {
                quants: self.quants.pointer(at * BLOCK),
                factors: self.factors.pointer(at),
                sums: (self.encodings.block_sums).then(|| self.sums.pointer(at)),
                stride: tile.width,
            };
            encode_blocks(self.tier, values, places);
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
