//! Q6_K: units of one superblock. First 32 f16 scales, then eight blocks of 32 inputs, each with `[2][32]` one-byte
//! scales, the low four bits as nibbles like in Q4_0, and the high two bits as `[2 sets][32 rows][4]` bytes, whose
//! pair p belongs to group `4 * set + p`: 6.56 bits a weight, as in the file.

use super::q4_0::pack_nibbles;
use super::{HALVES, PANEL_ROWS, Stretch, Unit, four_bytes, load_sums, store_sums};
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

/// The products of one group pair: group `FIELD` of the first sixteen inputs and of the second sixteen.
#[inline(always)]
unsafe fn dot_group<L: Lanes, const M: usize, const FIELD: usize>(
    dots: &mut [[L::Int; M]; 2],
    block: *const u8,
    half: usize,
    pairs: [L::Bytes; 2],
    x: *const i8,
) {
    let nibbles = L::bytes(block.add(NIBBLES_AT + (FIELD * PANEL_ROWS + half * LANES) * 4));
    let first = L::with_high_pair::<FIELD>(L::low_nibbles(nibbles), pairs[0]);
    let second = L::with_high_pair::<FIELD>(L::high_nibbles(nibbles), pairs[1]);
    for (i, (dots, weights)) in dots.iter_mut().zip([first, second]).enumerate() {
        for (r, dot) in dots.iter_mut().enumerate() {
            *dot = L::dot_small(
                *dot,
                weights,
                four_bytes(x.add(r * BLOCK + i * BLOCK / 2 + FIELD * 4)),
            );
        }
    }
}

#[inline(always)]
pub(super) unsafe fn accumulate<L: Lanes, const M: usize>(stretch: Stretch) {
    let mut sums = load_sums::<L, M>(stretch.sums);
    let mut weights = stretch.weights;
    let mut x = stretch.values.cast::<i8>();
    let mut factors = stretch.factors;
    for _ in 0..stretch.units {
        let mut block = weights.add(HEAD_BYTES);
        for _ in 0..BLOCKS {
            for half in 0..HALVES {
                let mut dots = [[L::int_splat(0); M]; 2];
                for (i, dots) in dots.iter_mut().enumerate() {
                    for (r, dot) in dots.iter_mut().enumerate() {
                        *dot = L::int_splat(OFFSET * (*factors.add(r)).negative_half_sums[i]);
                    }
                }
                let pairs = block.add(PAIRS_AT + half * LANES * 4);
                let pairs = [L::bytes(pairs), L::bytes(pairs.add(PANEL_ROWS * 4))];
                dot_group::<L, M, 0>(&mut dots, block, half, pairs, x);
                dot_group::<L, M, 1>(&mut dots, block, half, pairs, x);
                dot_group::<L, M, 2>(&mut dots, block, half, pairs, x);
                dot_group::<L, M, 3>(&mut dots, block, half, pairs, x);
                let scale = L::load_f16(weights.add(half * LANES * 2).cast());
                let first = scale.mul(L::load_i8(block.add(half * LANES).cast()));
                let second = scale.mul(L::load_i8(block.add(PANEL_ROWS + half * LANES).cast()));
                for (r, row) in sums.iter_mut().enumerate() {
                    let weighted = L::int_to_float(dots[0][r]).mul(first);
                    let weighted = L::int_to_float(dots[1][r]).fma(second, weighted);
                    row[half] = weighted.fma(L::splat((*factors.add(r)).scale), row[half]);
                }
            }
            block = block.add(BLOCK_BYTES);
            x = x.add(M * BLOCK);
            factors = factors.add(M);
        }
        weights = weights.add(UNIT.bytes);
    }
    store_sums(&sums, stretch.sums);
}
