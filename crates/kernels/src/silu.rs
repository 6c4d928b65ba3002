//! The activation function between the products of a feed-forward part.

use crate::lanes::{LANES, Lanes, exp, load_up_to, store_up_to};
use crate::tier::tiered;

tiered!(pub(crate) fn silu_mul(gate: &mut [f32], up: &[f32]) = silu_mul_with);

/// `gate = silu(gate) * up`, where `silu(x) = x / (1 + e^-x)`; both have the same length.
#[inline(always)]
unsafe fn silu_mul_with<L: Lanes>(gate: &mut [f32], up: &[f32]) {
    let (len, gate) = (gate.len(), gate.as_mut_ptr());
    for at in (0..len).step_by(LANES) {
        let x = load_up_to::<L>(gate.add(at), len - at);
        let sigmoid_inverse = exp(L::splat(0.0).sub(x)).add(L::splat(1.0));
        let product = x
            .div(sigmoid_inverse)
            .mul(load_up_to::<L>(up.as_ptr().add(at), len - at));
        store_up_to(product, gate.add(at), len - at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::Tier;

    #[test]
    fn silu_is_close_to_the_truth_at_any_length() {
        for len in [1, 15, 16, 17, 1000] {
            let x: Vec<f32> = (0..len).map(|i| (i as f32 - 500.0) * 0.05).collect();
            let up: Vec<f32> = (0..len).map(|i| (i as f32 * 0.1).cos()).collect();
            let mut gate = x.clone();
            // SAFETY: the machine has the tier; the lengths are equal.
            unsafe { silu_mul(Tier::detect(), &mut gate, &up) };
            for i in 0..len {
                let truth = f64::from(x[i]) / (1.0 + (-f64::from(x[i])).exp()) * f64::from(up[i]);
                assert!(
                    (f64::from(gate[i]) - truth).abs() <= 1e-6 * truth.abs().max(1e-3),
                    "{}",
                    x[i]
                );
            }
        }
    }
}
