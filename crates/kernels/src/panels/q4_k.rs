//! Q4_K: units of one superblock. First 32 f16 scales and 32 f16 minima, then eight sub-blocks of 32 one-byte
//! scales, 32 one-byte minima and nibbles as in Q4_0: 4.625 bits a weight where the file has 4.5, because the six
//! bits of a scale become a byte.

use super::q4_0::{dot_nibbles, pack_nibbles};
use super::{
    HALF_BYTES, HALVES, PANEL_ROWS, ROWS_FOR_BOTH_HALVES, Stretch, Unit, load_sums, opaque,
    store_sums,
};
use crate::blocks::{BLOCK, Q4K, SUPERBLOCK};
use crate::lanes::{LANES, Lanes};

const SUB_BLOCKS: usize = SUPERBLOCK / BLOCK;
const HEAD_BYTES: usize = PANEL_ROWS * 4;
const NIBBLES_AT: usize = PANEL_ROWS * 2;
const SUB_BLOCK_BYTES: usize = NIBBLES_AT + BLOCK * PANEL_ROWS / 2;
pub(super) const UNIT: Unit = Unit {
    len: SUPERBLOCK,
    bytes: HEAD_BYTES + SUB_BLOCKS * SUB_BLOCK_BYTES,
};

pub(super) fn pack(encoded: &[u8], lane: usize, unit: &mut [u8]) {
    let block = Q4K::decode(encoded);
    let (head, subs) = unit.split_at_mut(HEAD_BYTES);
    head[lane * 2..][..2].copy_from_slice(&block.scale.to_le_bytes());
    head[(PANEL_ROWS + lane) * 2..][..2].copy_from_slice(&block.min.to_le_bytes());
    for (j, sub) in subs.chunks_exact_mut(SUB_BLOCK_BYTES).enumerate() {
        sub[lane] = block.scales[j];
        sub[PANEL_ROWS + lane] = block.mins[j];
        pack_nibbles(
            &block.quants[j * BLOCK..(j + 1) * BLOCK],
            lane,
            &mut sub[NIBBLES_AT..],
        );
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
    let (mut factors, mut block_sums) = (stretch.factors, stretch.block_sums);
    for _ in 0..stretch.units {
        let mut sub = weights.add(HEAD_BYTES);
        for _ in 0..SUB_BLOCKS {
            stretch.prefetch_ahead::<M>(sub, NIBBLES_AT);
            for first in (0..HALVES).step_by(H) {
                let x = opaque(x);
                let mut dots = [[L::int_splat(0); H]; M];
                let nibbles = sub.add(NIBBLES_AT + first * HALF_BYTES);
                dot_nibbles::<L, M, H>(&stretch, &mut dots, nibbles, x);
                for half in first..first + H {
                    let scales = L::load_f16(weights.add(half * LANES * 2).cast());
                    let scales = scales.mul(L::load_u8(sub.add(half * LANES)));
                    let mins = L::load_f16(weights.add((PANEL_ROWS + half * LANES) * 2).cast());
                    let mins = mins.mul(L::load_u8(sub.add(PANEL_ROWS + half * LANES)));
                    for (r, dots) in dots.iter().enumerate() {
                        let scale = scales.mul(L::splat((*factors.add(r)).scale));
                        let negative = L::splat((*block_sums.add(r)).scaled_negative);
                        let sum = mins.fma(negative, sums[r][half]);
                        sums[r][half] = L::int_to_float(dots[half - first]).fma(scale, sum);
                    }
                }
            }
            sub = sub.add(SUB_BLOCK_BYTES);
            x = x.add(M * BLOCK);
            factors = factors.add(M);
            block_sums = block_sums.add(M);
        }
        weights = weights.add(UNIT.bytes);
    }
    store_sums(&sums, &stretch);
}
