//! f32 and f16 weights: units of one input, `[32]` values each. Activations stay f32.

use super::{HALVES, PANEL_ROWS, Stretch, load_sums, store_sums};
use crate::lanes::{LANES, Lanes};

/// Puts one value of `SIZE` bytes into its lane.
pub(super) fn pack<const SIZE: usize>(encoded: &[u8], lane: usize, unit: &mut [u8]) {
    unit[lane * SIZE..(lane + 1) * SIZE].copy_from_slice(encoded);
}

#[inline(always)]
unsafe fn load_f32<L: Lanes>(from: *const u8) -> L {
    L::load(from.cast())
}

#[inline(always)]
unsafe fn load_f16<L: Lanes>(from: *const u8) -> L {
    L::load_f16(from.cast())
}

macro_rules! accumulate {
    ($name:ident, $load:ident, $size:literal) => {
        #[inline(always)]
        pub(super) unsafe fn $name<L: Lanes, const M: usize>(stretch: Stretch) {
            let mut sums = [[L::splat(0.0); HALVES]; M];
            load_sums(&mut sums, &stretch);
            let mut weights = stretch.weights;
            let mut x = stretch.values.cast::<f32>();
            for _ in 0..stretch.units {
                stretch.prefetch_ahead::<M>(weights, PANEL_ROWS * $size);
                for half in 0..HALVES {
                    let lanes = $load::<L>(weights.add(half * LANES * $size));
                    for (r, row) in sums.iter_mut().enumerate() {
                        row[half] = lanes.fma(L::splat(*x.add(r)), row[half]);
                    }
                }
                weights = weights.add(PANEL_ROWS * $size);
                x = x.add(M);
            }
            store_sums(&sums, &stretch);
        }
    };
}

accumulate!(accumulate_f32, load_f32, 4);
accumulate!(accumulate_f16, load_f16, 2);
