//! One row's values in each of the encodings.

use half::bf16;

use super::BlockFactors;
use crate::blocks::BLOCK;
use crate::lanes::{LANES, Lanes};
use crate::tier::tiered;

/// The largest value of a quantised activation. Not 128: AVX2 negates them.
const LARGEST_QUANT: f32 = 127.0;
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

tiered!(pub(super) fn encode_blocks(x: &[f32], quants: *mut i8, factors: *mut BlockFactors, width: usize) = encode_blocks_with);

/// Quantises a part of a row; its blocks and their factors are written `width` places apart.
#[inline(always)]
unsafe fn encode_blocks_with<L: Lanes>(
    x: &[f32],
    quants: *mut i8,
    factors: *mut BlockFactors,
    width: usize,
) {
    for (index, block) in x.chunks_exact(BLOCK).enumerate() {
        let values = [L::load(block.as_ptr()), L::load(block.as_ptr().add(LANES))];
        let largest = values[0].abs().max(values[1].abs()).largest();
        let live = largest >= SMALLEST_BLOCK;
        let inverse = L::splat(if live { LARGEST_QUANT / largest } else { 0.0 });
        let quants = quants.add(index * width * BLOCK);
        let negative_half_sums = [
            -values[0].mul(inverse).store_i8(quants),
            -values[1].mul(inverse).store_i8(quants.add(LANES)),
        ];
        let scale = if live { largest / LARGEST_QUANT } else { 0.0 };
        let negative_sum = negative_half_sums[0] + negative_half_sums[1];
        *factors.add(index * width) = BlockFactors {
            scale,
            scaled_negative_sum: scale * negative_sum as f32,
            negative_sum,
            negative_half_sums,
        };
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
            let (mut quants, mut factors) = (vec![0; 64], vec![BlockFactors::default(); 2]);
            // SAFETY: the machine has the tier, and the buffers hold two blocks.
            unsafe { encode_blocks(tier, &x, quants.as_mut_ptr(), factors.as_mut_ptr(), 1) };
            for (i, value) in x.iter().enumerate() {
                let scale = factors[i / 32].scale;
                assert!((f32::from(quants[i]) * scale - value).abs() <= scale * 0.501);
            }
            for (half, quants) in quants.chunks(16).enumerate() {
                let sum: i32 = quants.iter().map(|quant| i32::from(*quant)).sum();
                assert_eq!(
                    factors[half / 2].negative_half_sums[half % 2],
                    -sum,
                    "{tier}"
                );
            }
            assert_eq!(
                factors[0].negative_sum,
                factors[0].negative_half_sums.iter().sum::<i32>()
            );
        }
    }
}
