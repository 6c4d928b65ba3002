//! Q4_0: units of one block, `[4 groups][32 rows][4]` bytes whose low nibbles are group g and whose high nibbles are
//! group g + 4, then 32 f16 scales: 4.5 bits a weight, as in the file.

use super::{
    HALF_BYTES, HALVES, PANEL_ROWS, ROWS_FOR_BOTH_HALVES, Stretch, Unit, four_bytes, load_halves,
    load_sums, opaque, store_sums,
};
use crate::blocks::{BLOCK, Q4_0};
use crate::lanes::{LANES, Lanes};

const GROUP_PAIRS: usize = BLOCK / 8;
const SCALES_AT: usize = BLOCK * PANEL_ROWS / 2;
pub(super) const UNIT: Unit = Unit {
    len: BLOCK,
    bytes: SCALES_AT + PANEL_ROWS * 2,
};
/// The file adds 8 to every weight to make it unsigned: a sixteenth of the offset that factors are made for.
const OFFSET_SHARE: i32 = 16;

pub(super) fn pack(encoded: &[u8], lane: usize, unit: &mut [u8]) {
    let block = Q4_0::decode(encoded);
    pack_nibbles(&block.quants, lane, unit);
    unit[SCALES_AT + lane * 2..][..2].copy_from_slice(&block.scale.to_le_bytes());
}

/// Puts the low four bits of one row's 32 values into `[4][32 rows][4]` bytes.
pub(super) fn pack_nibbles(quants: &[u8], lane: usize, nibbles: &mut [u8]) {
    for pair in 0..GROUP_PAIRS {
        let place = &mut nibbles[(pair * PANEL_ROWS + lane) * 4..][..4];
        for (i, byte) in place.iter_mut().enumerate() {
            *byte = (quants[pair * 4 + i] & 15) | (quants[BLOCK / 2 + pair * 4 + i] & 15) << 4;
        }
    }
}

/// Adds the products of a block's nibbles, in `H` halves from `nibbles` on, with every row of the tile.
#[inline(always)]
pub(super) unsafe fn dot_nibbles<L: Lanes, const M: usize, const H: usize>(
    stretch: &Stretch,
    dots: &mut [[L::Int; H]; M],
    nibbles: *const u8,
    x: *const i8,
) {
    for pair in 0..GROUP_PAIRS {
        let place = nibbles.add(pair * HALVES * HALF_BYTES);
        stretch.prefetch_ahead::<M>(place, H * HALF_BYTES);
        let bytes = load_halves::<L, H>(place);
        let (mut low, mut high) = (bytes, bytes);
        for (low, high) in low.iter_mut().zip(&mut high) {
            (*low, *high) = (L::low_nibbles(*low), L::high_nibbles(*high));
        }
        for (r, dots) in dots.iter_mut().enumerate() {
            let x = x.add(r * BLOCK + pair * 4);
            let (first, second) = (four_bytes(x), four_bytes(x.add(BLOCK / 2)));
            for (h, dot) in dots.iter_mut().enumerate() {
                *dot = L::dot_small(*dot, low[h], first);
                *dot = L::dot_small(*dot, high[h], second);
            }
        }
    }
}

#[inline(always)]
pub(super) unsafe fn accumulate<L: Lanes, const M: usize>(stretch: Stretch) {
    if M <= ROWS_FOR_BOTH_HALVES {
        accumulate_halves::<L, M, 2>(stretch);
    } else {
        accumulate_halves::<L, M, 1>(stretch);
    }
}

/// Takes `H` halves at once.
#[inline(always)]
unsafe fn accumulate_halves<L: Lanes, const M: usize, const H: usize>(stretch: Stretch) {
    let mut sums = [[L::splat(0.0); HALVES]; M];
    load_sums(&mut sums, &stretch);
    let mut weights = stretch.weights;
    let mut x = stretch.values.cast::<i8>();
    let mut factors = stretch.factors;
    for _ in 0..stretch.units {
        for first in (0..HALVES).step_by(H) {
            let x = opaque(x);
            let mut dots = [[L::int_splat(0); H]; M];
            for (r, dots) in dots.iter_mut().enumerate() {
                *dots = [L::int_splat((*factors.add(r)).offset / OFFSET_SHARE); H];
            }
            dot_nibbles::<L, M, H>(&stretch, &mut dots, weights.add(first * HALF_BYTES), x);
            for half in first..first + H {
                let scales = L::load_f16(weights.add(SCALES_AT + half * LANES * 2).cast());
                for (r, dots) in dots.iter().enumerate() {
                    let scale = scales.mul(L::splat((*factors.add(r)).scale));
                    sums[r][half] = L::int_to_float(dots[half - first]).fma(scale, sums[r][half]);
                }
            }
        }
        weights = weights.add(UNIT.bytes);
        x = x.add(M * BLOCK);
        factors = factors.add(M);
    }
    store_sums(&sums, &stretch);
}
