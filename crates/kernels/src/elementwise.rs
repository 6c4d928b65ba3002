//! What happens to single values between the matrix products.

use std::ops::Range;

use crate::compute::Compute;
use crate::lanes::{LANES, Lanes, exp, load_up_to, store_up_to};
use crate::shared_out::SharedOut;
use crate::tier::tiered;

/// Values in a chunk: less than this is done faster by one thread than by two.
const CHUNK_VALUES: usize = 1 << 14;

/// Runs `work` over ranges of rows with `row_len` values each, in parallel where there are enough of them.
pub(crate) fn for_each_row_chunk(
    compute: &Compute,
    rows: usize,
    row_len: usize,
    work: impl Fn(Range<usize>) + Sync,
) {
    let rows_per_chunk = CHUNK_VALUES.div_ceil(row_len.max(1));
    compute.run(rows.div_ceil(rows_per_chunk), |chunk| {
        let first = chunk * rows_per_chunk;
        work(first..rows.min(first + rows_per_chunk));
    });
}

/// `gate = silu(gate) * up`, where `silu(x) = x / (1 + e^-x)`.
///
/// # Panics
/// If the lengths differ.
pub fn silu_mul(compute: &Compute, gate: &mut [f32], up: &[f32]) {
    assert!(
        gate.len() == up.len(),
        "gate has {} values, up {}",
        gate.len(),
        up.len()
    );
    let len = gate.len();
    let out = SharedOut::new(gate);
    for_each_row_chunk(compute, len, 1, |range| {
        // SAFETY: ranges do not overlap; the machine has the tier.
        unsafe {
            silu_mul_range(
                compute.tier(),
                out.part(range.start, range.len()),
                &up[range],
            )
        };
    });
}

tiered!(fn silu_mul_range(gate: &mut [f32], up: &[f32]) = silu_mul_with);

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

/// `x += y`.
///
/// # Panics
/// If the lengths differ.
pub fn add_assign(compute: &Compute, x: &mut [f32], y: &[f32]) {
    assert!(
        x.len() == y.len(),
        "x has {} values, y {}",
        x.len(),
        y.len()
    );
    let len = x.len();
    let out = SharedOut::new(x);
    for_each_row_chunk(compute, len, 1, |range| {
        // SAFETY: ranges do not overlap.
        let x = unsafe { out.part(range.start, range.len()) };
        for (x, y) in x.iter_mut().zip(&y[range]) {
            *x += y;
        }
    });
}

/// Adds `bias` to every row of `bias.len()` values.
///
/// # Panics
/// If `x` is not a whole number of rows.
pub fn add_bias(compute: &Compute, x: &mut [f32], bias: &[f32]) {
    let n = bias.len();
    assert!(
        n > 0 && x.len().is_multiple_of(n),
        "{} values are not rows of {n}",
        x.len()
    );
    let rows = x.len() / n;
    let out = SharedOut::new(x);
    for_each_row_chunk(compute, rows, n, |rows| {
        // SAFETY: ranges of rows do not overlap.
        let x = unsafe { out.part(rows.start * n, rows.len() * n) };
        for row in x.chunks_exact_mut(n) {
            for (x, bias) in row.iter_mut().zip(bias) {
                *x += bias;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::Tier;

    #[test]
    fn silu_is_close_to_the_truth_at_any_length() {
        let compute = Compute::new(Tier::detect(), 2);
        for len in [1, 15, 16, 17, 1000, CHUNK_VALUES + 5] {
            let x: Vec<f32> = (0..len).map(|i| (i as f32 - 500.0) * 0.05).collect();
            let up: Vec<f32> = (0..len).map(|i| (i as f32 * 0.1).cos()).collect();
            let mut gate = x.clone();
            silu_mul(&compute, &mut gate, &up);
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

    #[test]
    fn biases_repeat_over_rows() {
        let compute = Compute::new(Tier::detect(), 2);
        let mut x = vec![1.0; 6];
        add_bias(&compute, &mut x, &[1.0, 2.0, 3.0]);
        add_assign(&compute, &mut x, &[1.0; 6]);
        assert_eq!(x, [3.0, 4.0, 5.0, 3.0, 4.0, 5.0]);
    }
}
