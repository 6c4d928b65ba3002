//! Q8_0: units of one block, `[8 groups][32 rows][4]` bytes with an offset of 128, then 32 f16 scales: 8.5 bits a
//! weight, as in the file.

use super::{
    HALF_BYTES, HALVES, PANEL_ROWS, ROWS_FOR_BOTH_HALVES, Stretch, Unit, four_bytes, load_halves,
    load_sums, opaque, store_sums,
};
use crate::blocks::{BLOCK, Q8_0};
use crate::lanes::{LANES, Lanes};

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

#[inline(always)]
pub(super) unsafe fn accumulate<L: Lanes, const M: usize>(stretch: Stretch) {
    if M <= ROWS_FOR_BOTH_HALVES {
        accumulate_halves::<L, M, HALVES>(stretch);
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
        stretch.ask_ahead::<M>(weights, UNIT.bytes);
        for first in (0..HALVES).step_by(H) {
            let x = opaque(x);
            let mut dots = [[L::int_splat(0); H]; M];
            for (r, dots) in dots.iter_mut().enumerate() {
                *dots = [L::dot_offset_start((*factors.add(r)).offset); H];
            }
            for group in 0..GROUPS {
                let place = weights.add((group * HALVES + first) * HALF_BYTES);
                let bytes = load_halves::<L, H>(place);
                for (r, dots) in dots.iter_mut().enumerate() {
                    let x = four_bytes(x.add(r * BLOCK + group * 4));
                    for (dot, bytes) in dots.iter_mut().zip(bytes) {
                        *dot = L::dot_offset(*dot, bytes, x);
                    }
                }
            }
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
