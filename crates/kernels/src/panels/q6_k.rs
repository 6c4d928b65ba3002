//! Q6_K: units of one superblock. First 32 f16 scales, then eight blocks of 32 inputs, each with `[2][32]` one-byte
//! scales, the high two bits as `[2 sets][32 rows][4]` bytes, whose pair p belongs to group `4 * set + p`, and the
//! low four bits as nibbles like in Q4_0: 6.56 bits a weight, as in the file.

use super::q4_0::pack_nibbles;
use super::{
    HALF_BYTES, HALVES, PANEL_ROWS, Stretch, Unit, four_bytes, load_halves, load_sums, opaque,
    store_sums,
};
use crate::blocks::{BLOCK, Q6K, SUPERBLOCK};
use crate::lanes::{LANES, Lanes};

const BLOCKS: usize = SUPERBLOCK / BLOCK;
const HEAD_BYTES: usize = PANEL_ROWS * 2;
const PAIRS_AT: usize = PANEL_ROWS * 2;
const NIBBLES_AT: usize = PAIRS_AT + BLOCK * PANEL_ROWS / 4;
const BLOCK_BYTES: usize = NIBBLES_AT + BLOCK * PANEL_ROWS / 2;
pub(super) const UNIT: Unit = Unit {
    len: SUPERBLOCK,
    bytes: HEAD_BYTES + BLOCKS * BLOCK_BYTES,
};
/// What the file adds to every weight to make it unsigned.
const OFFSET: i32 = 32;
/// Fewer than for other formats: a block has two scales, and so twice the integers.
const ROWS_FOR_BOTH_HALVES: usize = 4;

pub(super) fn pack(encoded: &[u8], lane: usize, unit: &mut [u8]) {
    let block = Q6K::decode(encoded);
    let (head, blocks) = unit.split_at_mut(HEAD_BYTES);
    head[lane * 2..][..2].copy_from_slice(&block.scale.to_le_bytes());
    for (j, place) in blocks.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        let quants = &block.quants[j * BLOCK..(j + 1) * BLOCK];
        place[lane] = block.scales[2 * j] as u8;
        place[PANEL_ROWS + lane] = block.scales[2 * j + 1] as u8;
        pack_nibbles(quants, lane, &mut place[NIBBLES_AT..]);
        for (group, quants) in quants.chunks_exact(4).enumerate() {
            let pairs = &mut place[PAIRS_AT + (group / 4 * PANEL_ROWS + lane) * 4..][..4];
            for (byte, quant) in pairs.iter_mut().zip(quants) {
                *byte |= (quant >> 4) << (group % 4 * 2);
            }
        }
    }
}

/// Adds the products of group `FIELD` of the first sixteen inputs and of the second sixteen, in `H` halves.
#[inline(always)]
unsafe fn dot_group<L: Lanes, const M: usize, const H: usize, const FIELD: usize>(
    stretch: &Stretch,
    dots: &mut [[[L::Int; 2]; H]; M],
    nibbles: *const u8,
    pairs: [[L::Bytes; H]; 2],
    x: *const i8,
) {
    let place = nibbles.add(FIELD * HALVES * HALF_BYTES);
    stretch.prefetch_ahead::<M>(place, H * HALF_BYTES);
    let bytes = load_halves::<L, H>(place);
    let (mut first, mut second) = (bytes, bytes);
    for (h, (first, second)) in first.iter_mut().zip(&mut second).enumerate() {
        *first = L::with_high_pair::<FIELD>(L::low_nibbles(*first), pairs[0][h]);
        *second = L::with_high_pair::<FIELD>(L::high_nibbles(*second), pairs[1][h]);
    }
    for (r, dots) in dots.iter_mut().enumerate() {
        let x = x.add(r * BLOCK + FIELD * 4);
        let words = (four_bytes(x), four_bytes(x.add(BLOCK / 2)));
        for (h, dots) in dots.iter_mut().enumerate() {
            dots[0] = L::dot_small(dots[0], first[h], words.0);
            dots[1] = L::dot_small(dots[1], second[h], words.1);
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
    let (mut factors, mut block_sums) = (stretch.factors, stretch.block_sums);
    for _ in 0..stretch.units {
        let mut block = weights.add(HEAD_BYTES);
        for _ in 0..BLOCKS {
            stretch.prefetch_ahead::<M>(block, NIBBLES_AT);
            for first in (0..HALVES).step_by(H) {
                let x = opaque(x);
                let mut dots = [[[L::int_splat(0); 2]; H]; M];
                for (r, dots) in dots.iter_mut().enumerate() {
                    let sums = (*block_sums.add(r)).negative_halves;
                    *dots = [[
                        L::int_splat(OFFSET * sums[0]),
                        L::int_splat(OFFSET * sums[1]),
                    ]; H];
                }
                let pairs = block.add(PAIRS_AT + first * HALF_BYTES);
                let pairs = [
                    load_halves::<L, H>(pairs),
                    load_halves::<L, H>(pairs.add(HALVES * HALF_BYTES)),
                ];
                let nibbles = block.add(NIBBLES_AT + first * HALF_BYTES);
                dot_group::<L, M, H, 0>(&stretch, &mut dots, nibbles, pairs, x);
                dot_group::<L, M, H, 1>(&stretch, &mut dots, nibbles, pairs, x);
                dot_group::<L, M, H, 2>(&stretch, &mut dots, nibbles, pairs, x);
                dot_group::<L, M, H, 3>(&stretch, &mut dots, nibbles, pairs, x);
                for half in first..first + H {
                    let scale = L::load_f16(weights.add(half * LANES * 2).cast());
                    let low = scale.mul(L::load_i8(block.add(half * LANES).cast()));
                    let high = scale.mul(L::load_i8(block.add(PANEL_ROWS + half * LANES).cast()));
                    for (r, dots) in dots.iter().enumerate() {
                        let weighted = L::int_to_float(dots[half - first][0]).mul(low);
                        let weighted = L::int_to_float(dots[half - first][1]).fma(high, weighted);
                        let scale = L::splat((*factors.add(r)).scale);
                        sums[r][half] = weighted.fma(scale, sums[r][half]);
                    }
                }
            }
            block = block.add(BLOCK_BYTES);
            x = x.add(M * BLOCK);
            factors = factors.add(M);
            block_sums = block_sums.add(M);
        }
        weights = weights.add(UNIT.bytes);
    }
    store_sums(&sums, &stretch);
}
