//! Q6_K: units of one superblock. First 32 f16 scales, then eight blocks of 32 inputs, each with `[2][32]` one-byte
//! scales, the low four bits as nibbles like in Q4_0, and the high two bits as `[2 sets][32 rows][4]` bytes, whose
//! pair p belongs to group `4 * set + p`: 6.56 bits a weight, as in the file.

use super::q4_0::pack_nibbles;
use super::{HALVES, PANEL_ROWS, Stretch, Unit, four_bytes, opaque};
use crate::blocks::{BLOCK, Q6K, SUPERBLOCK};
use crate::lanes::{LANES, Lanes};

const BLOCKS: usize = SUPERBLOCK / BLOCK;
const HEAD_BYTES: usize = PANEL_ROWS * 2;
const NIBBLES_AT: usize = PANEL_ROWS * 2;
const PAIRS_AT: usize = NIBBLES_AT + BLOCK * PANEL_ROWS / 2;
const BLOCK_BYTES: usize = PAIRS_AT + BLOCK * PANEL_ROWS / 4;
pub(super) const UNIT: Unit = Unit {
    len: SUPERBLOCK,
    bytes: HEAD_BYTES + BLOCKS * BLOCK_BYTES,
};
/// What the file adds to every weight to make it unsigned.
const OFFSET: i32 = 32;

pub(super) fn pack(encoded: &[u8], lane: usize, unit: &mut [u8]) {
    let block = Q6K::decode(encoded);
    let (head, blocks) = unit.split_at_mut(HEAD_BYTES);
    head[lane * 2..][..2].copy_from_slice(&block.scale.to_le_bytes());
    for (j, place) in blocks.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        let quants = &block.quants[j * BLOCK..(j + 1) * BLOCK];
        place[lane] = block.scales[2 * j] as u8;
        place[PANEL_ROWS + lane] = block.scales[2 * j + 1] as u8;
        pack_nibbles(quants, lane, &mut place[NIBBLES_AT..PAIRS_AT]);
        for (group, quants) in quants.chunks_exact(4).enumerate() {
            let pairs = &mut place[PAIRS_AT + (group / 4 * PANEL_ROWS + lane) * 4..][..4];
            for (byte, quant) in pairs.iter_mut().zip(quants) {
                *byte |= (quant >> 4) << (group % 4 * 2);
            }
        }
    }
}

/// Adds the products of group `FIELD` of the first sixteen inputs and of the second sixteen, for one half of the
/// rows.
#[inline(always)]
unsafe fn dot_group<L: Lanes, const M: usize, const FIELD: usize>(
    dots: &mut [[L::Int; 2]; M],
    nibbles: *const u8,
    pairs: [L::Bytes; 2],
    x: *const i8,
) {
    let bytes = L::bytes(nibbles.add(FIELD * PANEL_ROWS * 4));
    let first = L::with_high_pair::<FIELD>(L::low_nibbles(bytes), pairs[0]);
    let second = L::with_high_pair::<FIELD>(L::high_nibbles(bytes), pairs[1]);
    for (r, dots) in dots.iter_mut().enumerate() {
        let x = x.add(r * BLOCK + FIELD * 4);
        dots[0] = L::dot_small(dots[0], first, four_bytes(x));
        dots[1] = L::dot_small(dots[1], second, four_bytes(x.add(BLOCK / 2)));
    }
}

#[inline(always)]
pub(super) unsafe fn accumulate<L: Lanes, const M: usize>(stretch: Stretch) {
    let mut weights = stretch.weights;
    let mut x = stretch.values.cast::<i8>();
    let mut factors = stretch.factors;
    for _ in 0..stretch.units {
        let mut block = weights.add(HEAD_BYTES);
        for _ in 0..BLOCKS {
            stretch.prefetch_ahead::<M>(block, BLOCK_BYTES);
            // Sixteen inputs to a scale need twice the integers, so the halves take turns with the registers.
            for half in 0..HALVES {
                let x = opaque(x);
                let mut dots = [[L::int_splat(0); 2]; M];
                for (r, dots) in dots.iter_mut().enumerate() {
                    let sums = (*factors.add(r)).negative_half_sums;
                    *dots = [
                        L::int_splat(OFFSET * sums[0]),
                        L::int_splat(OFFSET * sums[1]),
                    ];
                }
                let pairs = block.add(PAIRS_AT + half * LANES * 4);
                let pairs = [L::bytes(pairs), L::bytes(pairs.add(PANEL_ROWS * 4))];
                let nibbles = block.add(NIBBLES_AT + half * LANES * 4);
                dot_group::<L, M, 0>(&mut dots, nibbles, pairs, x);
                dot_group::<L, M, 1>(&mut dots, nibbles, pairs, x);
                dot_group::<L, M, 2>(&mut dots, nibbles, pairs, x);
                dot_group::<L, M, 3>(&mut dots, nibbles, pairs, x);
                let scale = L::load_f16(weights.add(half * LANES * 2).cast());
                let first = scale.mul(L::load_i8(block.add(half * LANES).cast()));
                let second = scale.mul(L::load_i8(block.add(PANEL_ROWS + half * LANES).cast()));
                for (r, dots) in dots.iter().enumerate() {
                    let place = stretch.sums.add(r * PANEL_ROWS + half * LANES);
                    let weighted = L::int_to_float(dots[0]).mul(first);
                    let weighted = L::int_to_float(dots[1]).fma(second, weighted);
                    weighted
                        .fma(L::splat((*factors.add(r)).scale), L::load(place))
                        .store(place);
                }
            }
            block = block.add(BLOCK_BYTES);
            x = x.add(M * BLOCK);
            factors = factors.add(M);
        }
        weights = weights.add(UNIT.bytes);
    }
}
