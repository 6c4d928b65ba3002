//! bf16 weights: units of two inputs, `[32][2]` values each; a lone last input is paired with zero.
//!
//! Activations are rounded to bf16 too, as the BF16 extension multiplies pairs of them. That is one arithmetic for
//! every number of rows, and twice the speed of widening to f32.

use super::{HALVES, PANEL_ROWS, Stretch, load_sums, store_sums};
use crate::lanes::{LANES, Lanes};

const PAIR_BYTES: usize = 4;

pub(super) fn pack(encoded: &[u8], lane: usize, unit: &mut [u8]) {
    unit[lane * PAIR_BYTES..][..encoded.len()].copy_from_slice(encoded);
}

#[inline(always)]
pub(super) unsafe fn accumulate<L: Lanes, const M: usize>(stretch: Stretch) {
    let mut sums = [[L::splat(0.0); HALVES]; M];
    load_sums(&mut sums, &stretch);
    let mut weights = stretch.weights;
    let mut x = stretch.values.cast::<u32>();
    for _ in 0..stretch.units {
        stretch.prefetch_ahead::<M>(weights, PANEL_ROWS * PAIR_BYTES);
        for half in 0..HALVES {
            let pairs = L::bytes(weights.add(half * LANES * PAIR_BYTES));
            for (r, row) in sums.iter_mut().enumerate() {
                row[half] = row[half].dot_bf16(pairs, *x.add(r));
            }
        }
        weights = weights.add(PANEL_ROWS * PAIR_BYTES);
        x = x.add(M);
    }
    store_sums(&sums, &stretch);
}
