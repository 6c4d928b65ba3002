//! How weights lie in memory for the kernels, one module a format: its layout, its packing and its product.
//!
//! A **panel** holds 32 output rows, padded with zeros at the matrix's end. Along the inputs it is a sequence of
//! **units** (one value for f32 and f16, a pair for bf16, a block for the quantised formats), and within a unit the
//! 32 rows lie side by side, so that a vector register holds sixteen outputs and a panel is read from its first byte
//! to its last. Scales stand inside the unit that they belong to: one stream, which the hardware prefetches well.
//!
//! A product accumulates one panel against a tile of a few input rows. Integers are exact within a block, and f32
//! sums run over the units in ascending order, which is the same for every tile and every tier.

mod bf16;
mod float;
mod q4_0;
mod q4_k;
mod q6_k;
mod q8_0;

use crate::activations::{BlockFactors, BlockSums};
use crate::format::Format;
use crate::lanes::{LANES, Lanes};
use crate::prefetch::{LINE, prefetch_far, prefetch_near};
use crate::tier::Tier;

/// Output rows in a panel.
pub(crate) const PANEL_ROWS: usize = 32;
/// Registers of lanes across a panel.
const HALVES: usize = PANEL_ROWS / LANES;
/// The widths of row tiles that kernels are compiled for: all that verifying a few drafts takes, so that none of its
/// rows is padding.
pub(crate) const TILE_WIDTHS: [usize; 8] = [1, 2, 3, 4, 5, 6, 7, WIDEST_TILE];
pub(crate) const WIDEST_TILE: usize = 8;

/// How far ahead weights are asked for: what arrives during a trip to memory.
const PREFETCH_AHEAD: usize = 4608;
/// Below this, prefetching costs more than it brings.
const FEWEST_ROWS_TO_PREFETCH: usize = 2;

/// How far ahead, and with one line in how many bytes, a stream that the hardware prefetches is announced to it.
const ANNOUNCE_AHEAD: usize = 8 << 10;
const ANNOUNCE_EVERY: usize = 6 * LINE;

/// How far ahead every line is asked for where the hardware would come too late.
const LINES_AHEAD: usize = 16 << 10;
/// Up to so many rows it follows weights from memory by itself. (It can follow seven: where memory is slow they take 7 % more
/// time asked for by line. But where memory is fast they take an eighth less.)
const MOST_ROWS_OF_A_STREAM: usize = 6;
/// From so many rows on it does come too late, with weights from the processor's own cache, which arrive sooner than it runs ahead.
const FEWEST_ROWS_FOR_LINES: usize = 4;

/// The smallest part of a panel along its inputs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit {
    /// Input values that it covers.
    pub(crate) len: usize,
    /// Bytes for all rows of a panel.
    pub(crate) bytes: usize,
}

impl Unit {
    pub(crate) fn of(format: Format) -> Unit {
        match format {
            Format::F32 => Unit {
                len: 1,
                bytes: PANEL_ROWS * 4,
            },
            Format::F16 => Unit {
                len: 1,
                bytes: PANEL_ROWS * 2,
            },
            Format::Bf16 => Unit {
                len: 2,
                bytes: PANEL_ROWS * 4,
            },
            Format::Q8_0 => q8_0::UNIT,
            Format::Q4_0 => q4_0::UNIT,
            Format::Q4K => q4_k::UNIT,
            Format::Q6K => q6_k::UNIT,
        }
    }
}

/// Writes one encoded row into its place in a panel.
pub(crate) fn pack_row(format: Format, row: &[u8], lane: usize, panel: &mut [u8]) {
    debug_assert!(lane < PANEL_ROWS);
    let unit = Unit::of(format);
    let units = panel.chunks_exact_mut(unit.bytes);
    let file_bytes = unit.len / format.block_len() * format.block_bytes();
    for (unit, encoded) in units.zip(row.chunks(file_bytes)) {
        match format {
            Format::F32 => float::pack::<4>(encoded, lane, unit),
            Format::F16 => float::pack::<2>(encoded, lane, unit),
            Format::Bf16 => bf16::pack(encoded, lane, unit),
            Format::Q8_0 => q8_0::pack(encoded, lane, unit),
            Format::Q4_0 => q4_0::pack(encoded, lane, unit),
            Format::Q4K => q4_k::pack(encoded, lane, unit),
            Format::Q6K => q6_k::pack(encoded, lane, unit),
        }
    }
}

/// A stretch of one or more panels and of one tile of rows, and where their products go.
#[derive(Clone, Copy)]
pub(crate) struct Stretch {
    /// The first panel's bytes at the stretch's first unit.
    pub(crate) weights: *const u8,
    /// Neighbouring panels that are taken one after the other. Between them there is so little to do that the next
    /// one's weights are already asked for while the last one's are still on their way.
    pub(crate) panels: usize,
    pub(crate) panel_bytes: usize,
    /// Units in the stretch.
    pub(crate) units: usize,
    /// The rows' values in the encoding that the format multiplies with, interleaved as the tile is wide.
    pub(crate) values: *const u8,
    /// What belongs to the rows' blocks; for the quantised formats only.
    pub(crate) factors: *const BlockFactors,
    /// Sums over those blocks; for the formats that take them only.
    pub(crate) block_sums: *const BlockSums,
    /// Where the sums go: 32 of each panel for each row of the tile, the rows `sums_stride` apart.
    pub(crate) sums: *mut f32,
    pub(crate) sums_stride: usize,
    /// Whether the products are added to what stands there, instead of taking its place.
    pub(crate) adds: bool,
    /// How weights should be asked for before they are needed.
    pub(crate) ask: Ask,
}

/// How weights are asked for before they are needed. Only Q8_0 tells the last two apart; the other formats ask for every line,
/// into the first-level cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Not at all: they are near already.
    Not,
    /// The hardware's prefetcher is shown where the stream is going to be. With the arithmetic of several rows in between,
    /// few reads are under way at a time, and it stays too close to them to hide a trip to memory. One line in six is
    /// enough for it to run further ahead; asking for every line leaves it nothing to learn from, and with weights from
    /// memory is a fifth slower for four rows, half as fast for two. (Two lines side by side show it less: three
    /// to five rows take 3 to 6 % more time.)
    Stream,
    /// Every line. With so much arithmetic that the hardware sees no stream any more, or weights from the processor's cache,
    /// that takes a tenth less time.
    Lines,
}

impl Ask {
    /// How to ask for weights that are multiplied with `width` rows, and may or may not come from the processor's cache.
    pub(crate) fn for_rows(width: usize, from_cache: bool) -> Ask {
        if width > MOST_ROWS_OF_A_STREAM || (from_cache && width >= FEWEST_ROWS_FOR_LINES) {
            Ask::Lines
        } else {
            Ask::Stream
        }
    }
}

macro_rules! accumulate_for_widths {
    ($name:ident, $($kernel:ident)::+ $(, $extension:ident)?) => {
        unsafe fn $name(tier: Tier, width: usize, stretch: Stretch) {
            #[inline(always)]
            unsafe fn panels<L: Lanes, const M: usize>(mut stretch: Stretch) {
                for _ in 0..stretch.panels {
                    $($kernel)::+::<L, M>(stretch);
                    stretch.weights = stretch.weights.add(stretch.panel_bytes);
                    stretch.sums = stretch.sums.add(PANEL_ROWS);
                }
            }
            $crate::tier::tiered!($($extension)? fn one(stretch: Stretch) = panels, 1);
            $crate::tier::tiered!($($extension)? fn two(stretch: Stretch) = panels, 2);
            $crate::tier::tiered!($($extension)? fn three(stretch: Stretch) = panels, 3);
            $crate::tier::tiered!($($extension)? fn four(stretch: Stretch) = panels, 4);
            $crate::tier::tiered!($($extension)? fn five(stretch: Stretch) = panels, 5);
            $crate::tier::tiered!($($extension)? fn six(stretch: Stretch) = panels, 6);
            $crate::tier::tiered!($($extension)? fn seven(stretch: Stretch) = panels, 7);
            $crate::tier::tiered!($($extension)? fn eight(stretch: Stretch) = panels, 8);
            match width {
                1 => one(tier, stretch),
                2 => two(tier, stretch),
                3 => three(tier, stretch),
                4 => four(tier, stretch),
                5 => five(tier, stretch),
                6 => six(tier, stretch),
                7 => seven(tier, stretch),
                _ => eight(tier, stretch),
            }
        }
    };
}

accumulate_for_widths!(f32_for_width, float::accumulate_f32);
accumulate_for_widths!(f16_for_width, float::accumulate_f16);
accumulate_for_widths!(bf16_for_width, bf16::accumulate, bf16);
accumulate_for_widths!(q8_0_for_width, q8_0::accumulate);
accumulate_for_widths!(q4_0_for_width, q4_0::accumulate);
accumulate_for_widths!(q4_k_for_width, q4_k::accumulate);
accumulate_for_widths!(q6_k_for_width, q6_k::accumulate);

/// Computes the products of a stretch.
///
/// # Safety
/// The machine must have `tier`; `width` must be one of [`TILE_WIDTHS`]; the pointers of `stretch` must be valid for
/// its units, in the layouts of `format` and of the matching encoding of activations.
pub(crate) unsafe fn accumulate(tier: Tier, format: Format, width: usize, stretch: Stretch) {
    match format {
        Format::F32 => f32_for_width(tier, width, stretch),
        Format::F16 => f16_for_width(tier, width, stretch),
        Format::Bf16 => bf16_for_width(tier.for_bf16(), width, stretch),
        Format::Q8_0 => q8_0_for_width(tier, width, stretch),
        Format::Q4_0 => q4_0_for_width(tier, width, stretch),
        Format::Q4K => q4_k_for_width(tier, width, stretch),
        Format::Q6K => q6_k_for_width(tier, width, stretch),
    }
}

impl Stretch {
    /// Asks for what the next units need while `bytes` at `weights` are multiplied with `M` rows. Hardware
    /// prefetches a stream that is merely read, as with few rows; with more arithmetic in between it falls behind.
    #[inline(always)]
    fn prefetch_ahead<const M: usize>(&self, weights: *const u8, bytes: usize) {
        if M >= FEWEST_ROWS_TO_PREFETCH && self.ask != Ask::Not {
            prefetch_near(weights.wrapping_add(PREFETCH_AHEAD), bytes);
        }
    }

    /// The same once a unit, into the second-level cache.
    #[inline(always)]
    fn ask_ahead<const M: usize>(&self, unit: *const u8, bytes: usize) {
        if M < FEWEST_ROWS_TO_PREFETCH {
            return;
        }
        match self.ask {
            Ask::Not => {}
            Ask::Stream => {
                for at in (ANNOUNCE_AHEAD..ANNOUNCE_AHEAD + bytes).step_by(ANNOUNCE_EVERY) {
                    prefetch_far(unit.wrapping_add(at), LINE);
                }
            }
            Ask::Lines => prefetch_far(unit.wrapping_add(LINES_AHEAD), bytes),
        }
    }
}

/// The sums of a tile, in registers.
type Tile<L, const M: usize> = [[L; HALVES]; M];

/// Continues with the sums of the stretch before, if there is one. With up to six rows (of Q8_0: eight) they stay in registers
/// for a whole stretch: sums in memory, touched once a block, would make reading the weights wait for writes to addresses that look alike.
#[inline(always)]
unsafe fn load_sums<L: Lanes, const M: usize>(tile: &mut Tile<L, M>, stretch: &Stretch) {
    if stretch.adds {
        for (r, row) in tile.iter_mut().enumerate() {
            for (half, lanes) in row.iter_mut().enumerate() {
                *lanes = L::load(stretch.sums.add(r * stretch.sums_stride + half * LANES));
            }
        }
    }
}

#[inline(always)]
unsafe fn store_sums<L: Lanes, const M: usize>(tile: &Tile<L, M>, stretch: &Stretch) {
    for (r, row) in tile.iter().enumerate() {
        for (half, lanes) in row.iter().enumerate() {
            lanes.store(stretch.sums.add(r * stretch.sums_stride + half * LANES));
        }
    }
}

/// Bytes that one group of four inputs takes for the sixteen rows of one half.
const HALF_BYTES: usize = LANES * 4;
/// Up to this many rows, integers and sums for both halves fit into registers and memory is read in order. With more
/// rows the halves take turns.
const ROWS_FOR_BOTH_HALVES: usize = 6;

/// The bytes of one group for `H` neighbouring halves.
#[inline(always)]
unsafe fn load_halves<L: Lanes, const H: usize>(from: *const u8) -> [L::Bytes; H] {
    let mut halves = [L::bytes(from); H];
    for (h, bytes) in halves.iter_mut().enumerate() {
        *bytes = L::bytes(from.add(h * HALF_BYTES));
    }
    halves
}

/// The same pointer, of which the compiler knows nothing. It would otherwise broadcast every activation once for all
/// turns, find that it has too few registers for that, and keep the broadcasts in memory.
#[inline(always)]
fn opaque(pointer: *const i8) -> *const i8 {
    #[cfg(target_arch = "x86_64")]
    {
        let mut pointer = pointer;
        // SAFETY: there is no instruction in it.
        unsafe {
            std::arch::asm!("/* {0} */", inout(reg) pointer, options(readonly, nostack, preserves_flags))
        };
        pointer
    }
    #[cfg(not(target_arch = "x86_64"))]
    pointer
}

/// Four consecutive i8 as the word that the dot products take.
#[inline(always)]
unsafe fn four_bytes(from: *const i8) -> i32 {
    from.cast::<i32>().read_unaligned()
}
