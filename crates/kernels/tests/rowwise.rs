//! Norms, rotations and activations give the same bits in every tier, at any length and with any number of threads.

mod common;

use common::{Noise, tiers};
use forespeak_kernels::{
    Compute, RopeTable, Tier, add_assign, add_bias, rms_norm, rms_norm_in_place, rope, silu_mul,
};
use proptest::prelude::*;

/// Everything that happens to rows between matrix products, one after the other.
fn all_steps(compute: &Compute, x: &[f32], weight: &[f32], other: &[f32]) -> Vec<u32> {
    let n = weight.len();
    let positions: Vec<u32> = (0..x.len() / n).map(|row| row as u32 * 37).collect();
    let inv_freq: Vec<f32> = (0..n / 2)
        .map(|i| 1e4_f32.powf(-2.0 * i as f32 / n as f32))
        .collect();
    let table = RopeTable::new(&inv_freq, 1.0, 37 * positions.len() + 1);
    let mut out = vec![0.0; x.len()];
    rms_norm(compute, x, weight, 1e-6, &mut out);
    add_bias(compute, &mut out, weight);
    rope(compute, &mut out, 1, n, &positions, &table);
    silu_mul(compute, &mut out, other);
    add_assign(compute, &mut out, x);
    rms_norm_in_place(compute, &mut out, weight, 1e-6);
    out.into_iter().map(f32::to_bits).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn tiers_and_threads_agree_to_the_bit(n in 1..400_usize, rows in 1..100_usize, seed in any::<u64>()) {
        let noise = &mut Noise::new(seed);
        let x: Vec<f32> = noise.values(n * rows).into_iter().map(|value| value * 20.0).collect();
        let (weight, other) = (noise.values(n), noise.values(n * rows));
        let expected = all_steps(&Compute::new(Tier::Scalar, 1), &x, &weight, &other);
        for tier in tiers() {
            for threads in [1, 3] {
                let out = all_steps(&Compute::new(tier, threads), &x, &weight, &other);
                prop_assert_eq!(&out, &expected, "{} with {} threads", tier, threads);
            }
        }
    }
}
