//! Q8_0: units of one block, `[8 groups][32 rows][4]` bytes with an offset of 128, then 32 f16 scales: 8.5 bits a
//! weight, as in the file.

use std::ops::Range;

use super::{
    HALF_BYTES, HALVES, PANEL_ROWS, Stretch, Tile, Unit, WIDEST_TILE, four_bytes, load_halves,
    load_sums, store_sums,
};
use crate::activations::BlockFactors;
use crate::blocks::{BLOCK, Q8_0};
use crate::lanes::{LANES, Lanes};
use crate::prefetch::LINE;

const GROUPS: usize = BLOCK / 4;
const SCALES_AT: usize = BLOCK * PANEL_ROWS;
pub(super) const UNIT: Unit = Unit {
    len: BLOCK,
    bytes: SCALES_AT + PANEL_ROWS * 2,
};

pub(super) fn pack(encoded: &[u8], lane: usize, unit: &mut [u8]) {
    let block = Q8_0::decode(encoded);
    for (group, quants) in block.quants.chunks_exact(4).enumerate() {
        let place = &mut unit[(group * PANEL_ROWS + lane) * 4..][..4];
        for (byte, quant) in place.iter_mut().zip(quants) {
            *byte = *quant as u8 ^ 0x80;
        }
    }
    unit[SCALES_AT + lane * 2..][..2].copy_from_slice(&block.scale.to_le_bytes());
}

/// Up to this many rows, integers and sums for both halves fit into registers.
const ROWS_AT_ONCE: usize = 7;
/// The rows of the widest tile take turns in two groups.
const GROUP_ROWS: usize = WIDEST_TILE / 2;
/// Units in a turn: few enough for a group to find in the first-level cache what the other one has read, and enough for its
/// sums to be at rest meanwhile.
const TURN: usize = 2;
/// What the first group asks for of a unit that is needed later; the second asks for the rest. Asking for all of it in one
/// turn made nine rows and more take a tenth longer with weights from memory.
const ASKED_BY_FIRST: usize = UNIT.bytes.next_multiple_of(2 * LINE) / 2;

#[inline(always)]
pub(super) unsafe fn accumulate<L: Lanes, const M: usize>(stretch: Stretch) {
    const { assert!(M <= ROWS_AT_ONCE || M == WIDEST_TILE) };
    if M <= ROWS_AT_ONCE {
        let mut rows = Rows::<L, M>::begin(stretch, 0);
        rows.meet::<M>(stretch.units, 0..UNIT.bytes);
        rows.finish();
        return;
    }
    let mut first = Rows::<L, GROUP_ROWS>::begin(stretch, 0);
    let mut second = Rows::<L, GROUP_ROWS>::begin(stretch, GROUP_ROWS);
    let mut left = stretch.units;
    while left > 0 {
        let units = left.min(TURN);
        first.meet::<M>(units, 0..ASKED_BY_FIRST);
        second.meet::<M>(units, ASKED_BY_FIRST..UNIT.bytes);
        left -= units;
    }
    first.finish();
    second.finish();
}

/// Neighbouring rows of a tile on their way along a stretch.
struct Rows<L: Lanes, const R: usize> {
    sums: Tile<L, R>,
    /// What is left of it: its weights, values and factors are those of the next unit.
    stretch: Stretch,
}

impl<L: Lanes, const R: usize> Rows<L, R> {
    #[inline(always)]
    unsafe fn begin(stretch: Stretch, first_row: usize) -> Self {
        let stretch = Stretch {
            values: stretch.values.add(first_row * BLOCK),
            factors: stretch.factors.add(first_row),
            sums: stretch.sums.add(first_row * stretch.sums_stride),
            ..stretch
        };
        let mut sums = [[L::splat(0.0); HALVES]; R];
        load_sums(&mut sums, &stretch);
        Rows { sums, stretch }
    }

    /// Multiplies with the next units of a tile of `M` rows, and asks for a part of those that are needed later.
    #[inline(always)]
    unsafe fn meet<const M: usize>(&mut self, units: usize, asks_for: Range<usize>) {
        for _ in 0..units {
            let Stretch {
                weights,
                values,
                factors,
                ..
            } = self.stretch;
            let asked = weights.add(asks_for.start);
            self.stretch.ask_ahead::<M>(asked, asks_for.len());
            self.add_products(weights, values.cast(), factors);
            self.stretch.weights = weights.add(UNIT.bytes);
            self.stretch.values = values.add(M * BLOCK);
            self.stretch.factors = factors.add(M);
        }
    }

    #[inline(always)]
    unsafe fn add_products(
        &mut self,
        weights: *const u8,
        x: *const i8,
        factors: *const BlockFactors,
    ) {
        let mut dots = [[L::int_splat(0); HALVES]; R];
        for (r, dots) in dots.iter_mut().enumerate() {
            *dots = [L::dot_offset_start((*factors.add(r)).offset); HALVES];
        }
        for group in 0..GROUPS {
            let bytes = load_halves::<L, HALVES>(weights.add(group * HALVES * HALF_BYTES));
            for (r, dots) in dots.iter_mut().enumerate() {
                let x = four_bytes(x.add(r * BLOCK + group * 4));
                for (dot, bytes) in dots.iter_mut().zip(bytes) {
                    *dot = L::dot_offset(*dot, bytes, x);
                }
            }
        }
        for half in 0..HALVES {
            let scales = L::load_f16(weights.add(SCALES_AT + half * LANES * 2).cast());
            for (r, dots) in dots.iter().enumerate() {
                let scale = scales.mul(L::splat((*factors.add(r)).scale));
                let sum = &mut self.sums[r][half];
                *sum = L::int_to_float(dots[half]).fma(scale, *sum);
            }
        }
    }

    #[inline(always)]
    unsafe fn finish(self) {
        store_sums(&self.sums, &self.stretch);
    }
}
