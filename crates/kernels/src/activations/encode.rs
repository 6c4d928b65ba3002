//! One row's values in each of the encodings.

use half::bf16;

use super::{BlockFactors, BlockSums};
use crate::blocks::BLOCK;
use crate::lanes::{LANES, Lanes};
use crate::tier::tiered;

/// The largest value of a quantised activation. Not 128: AVX2 negates them.
const LARGEST_QUANT: f32 = 127.0;
/// What is added to weights to make them positive.
const WEIGHT_OFFSET: i32 = 128;
/// Blocks whose largest value is below this count as zero; its inverse would leave f32.
const SMALLEST_BLOCK: f32 = 1e-30;

/// Two values, the second of which may be missing, as the word that bf16 products take.
pub(super) fn bf16_pair(values: &[f32]) -> u32 {
    let bits = |i: usize| {
        values
            .get(i)
            .map_or(0, |value| u32::from(bf16::from_f32(*value).to_bits()))
    };
    bits(0) | bits(1) << 16
}

/// Where the blocks of a row go.
#[derive(Clone, Copy)]
pub(super) struct BlockPlaces {
    pub(super) quants: *mut i8,
    pub(super) factors: *mut BlockFactors,
    /// If anyone takes them.
    pub(super) sums: Option<*mut BlockSums>,
    /// How many places further the next block goes.
    pub(super) stride: usize,
}

tiered!(pub(super) fn encode_blocks(x: &[f32], places: BlockPlaces) = encode_blocks_with);

/// Quantises a part of a row.
#[inline(always)]
unsafe fn encode_blocks_with<L: Lanes>(x: &[f32], places: BlockPlaces) {
    for (index, block) in x.chunks_exact(BLOCK).enumerate() {
        let values = [L::load(block.as_ptr()), L::load(block.as_ptr().add(LANES))];
        let largest = values[0].abs().max(values[1].abs()).largest();
        let live = largest >= SMALLEST_BLOCK;
        let inverse = L::splat(if live { LARGEST_QUANT / largest } else { 0.0 });
        let place = index * places.stride;
        let quants = places.quants.add(place * BLOCK);
        let negative_halves = [
            -values[0].mul(inverse).store_i8(quants),
            -values[1].mul(inverse).store_i8(quants.add(LANES)),
        ];
        let scale = if live { largest / LARGEST_QUANT } else { 0.0 };
        let negative_sum = negative_halves[0] + negative_halves[1];
        *places.factors.add(place) = BlockFactors {
            scale,
            offset: negative_sum * WEIGHT_OFFSET,
        };
        if let Some(sums) = places.sums {
            *sums.add(place) = BlockSums {
                scaled_negative: scale * negative_sum as f32,
                negative_halves,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::Tier;

    #[test]
    fn quants_stay_within_half_a_step_of_their_values() {
        let x: Vec<f32> = (0..64).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
        for tier in Tier::ALL.into_iter().filter(|tier| *tier <= Tier::detect()) {
            let (mut quants, mut factors) = ([0; 64], [BlockFactors::default(); 2]);
            let mut sums = [BlockSums::default(); 2];
            let places = BlockPlaces {
                quants: quants.as_mut_ptr(),
                factors: factors.as_mut_ptr(),
                sums: Some(sums.as_mut_ptr()),
                stride: 1,
            };
            // SAFETY: the machine has the tier, and the buffers hold two blocks.
            unsafe { encode_blocks(tier, &x, places) };
            for (i, value) in x.iter().enumerate() {
                let scale = factors[i / 32].scale;
                assert!((f32::from(quants[i]) * scale - value).abs() <= scale * 0.501);
            }
            for (half, quants) in quants.chunks(16).enumerate() {
                let sum: i32 = quants.iter().map(|quant| i32::from(*quant)).sum();
                assert_eq!(sums[half / 2].negative_halves[half % 2], -sum, "{tier}");
            }
            for (factors, sums) in factors.iter().zip(sums) {
                let negative: i32 = sums.negative_halves.iter().sum();
                assert_eq!(factors.offset, 128 * negative, "{tier}");
                assert_eq!(sums.scaled_negative, factors.scale * negative as f32);
            }
        }
    }
}
