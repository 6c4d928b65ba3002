//! Root-mean-square normalisation of rows.

use crate::compute::Compute;
use crate::elementwise::for_each_row_chunk;
use crate::lanes::{LANES, Lanes, load_up_to, store_up_to};
use crate::shared_out::SharedOut;
use crate::tier::tiered;

/// `out = x / sqrt(mean(x^2) + eps) * weight` for every row of `weight.len()` values.
///
/// # Panics
/// If `x` is not a whole number of rows or `out` is not as long as `x`.
pub fn rms_norm(compute: &Compute, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert!(
        x.len() == out.len(),
        "x has {} values, out {}",
        x.len(),
        out.len()
    );
    out.copy_from_slice(x);
    rms_norm_in_place(compute, out, weight, eps);
}

/// [`rms_norm`] over its own input; also for the heads of a query, as rows of `head_dim` values.
///
/// # Panics
/// If `x` is not a whole number of rows.
pub fn rms_norm_in_place(compute: &Compute, x: &mut [f32], weight: &[f32], eps: f32) {
    let n = weight.len();
    assert!(
        n > 0 && x.len().is_multiple_of(n),
        "{} values are not rows of {n}",
        x.len()
    );
    let rows = x.len() / n;
    let out = SharedOut::new(x);
    for_each_row_chunk(compute, rows, n, |rows| {
        for row in rows {
            // SAFETY: every row belongs to one chunk; the machine has the tier.
            unsafe { normalize(compute.tier(), out.part(row * n, n), weight, eps) };
        }
    });
}

tiered!(fn normalize(row: &mut [f32], weight: &[f32], eps: f32) = normalize_with);

/// Sums that run side by side, to hide the latency of an addition.
const STRANDS: usize = 4;

#[inline(always)]
unsafe fn normalize_with<L: Lanes>(row: &mut [f32], weight: &[f32], eps: f32) {
    let n = row.len();
    let x = row.as_mut_ptr();
    let mut squares = [L::splat(0.0); STRANDS];
    for at in (0..n).step_by(STRANDS * LANES) {
        for (strand, sum) in squares.iter_mut().enumerate() {
            let at = at + strand * LANES;
            if at < n {
                let values = load_up_to::<L>(x.add(at), n - at);
                *sum = values.fma(values, *sum);
            }
        }
    }
    let sum = squares[0]
        .add(squares[1])
        .add(squares[2].add(squares[3]))
        .sum();
    let scale = L::splat(1.0 / (sum / n as f32 + eps).sqrt());
    for at in (0..n).step_by(LANES) {
        let values = load_up_to::<L>(x.add(at), n - at).mul(scale);
        store_up_to(
            values.mul(load_up_to::<L>(weight.as_ptr().add(at), n - at)),
            x.add(at),
            n - at,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::Tier;

    #[test]
    fn rows_are_scaled_to_unit_mean_square() {
        let compute = Compute::new(Tier::detect(), 1);
        for n in [1, 7, 16, 64, 100, 1024] {
            let x: Vec<f32> = (0..3 * n).map(|i| (i as f32 * 0.3).sin() + 0.1).collect();
            let weight: Vec<f32> = (0..n).map(|i| 1.0 + i as f32 * 0.01).collect();
            let mut out = vec![0.0; x.len()];
            rms_norm(&compute, &x, &weight, 1e-5, &mut out);
            for (x, out) in x.chunks(n).zip(out.chunks(n)) {
                let mean = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / n as f64;
                for i in 0..n {
                    let truth = f64::from(x[i]) / (mean + 1e-5).sqrt() * f64::from(weight[i]);
                    assert!(
                        (f64::from(out[i]) - truth).abs() < 1e-5 * truth.abs().max(1.0),
                        "n={n}"
                    );
                }
            }
        }
    }
}
