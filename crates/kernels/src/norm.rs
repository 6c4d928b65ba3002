//! Root-mean-square normalisation of rows.

use crate::lanes::{LANES, Lanes, load_up_to, store_up_to};
use crate::tier::{Tier, tiered};

/// `x / sqrt(mean(x^2) + eps) * weight` for rows of `weight.len()` values.
#[derive(Debug, Clone, Copy)]
pub struct Norm<'a> {
    /// One factor for each value of a row.
    pub weight: &'a [f32],
    /// What keeps rows of zeros finite.
    pub eps: f32,
}

impl Norm<'_> {
    /// Writes the normalised `row` to `out`.
    pub(crate) fn apply(self, tier: Tier, row: &[f32], out: &mut [f32]) {
        let n = self.weight.len();
        assert!(
            row.len() == n && out.len() == n,
            "a row of {} for a norm of {n}",
            row.len()
        );
        // SAFETY: all are `n` long; tiers in use are those that the machine has.
        unsafe { normalize(tier, row.as_ptr(), self.weight, self.eps, out.as_mut_ptr()) };
    }
}

tiered!(fn normalize(x: *const f32, weight: &[f32], eps: f32, out: *mut f32) = normalize_with);

/// Sums that run side by side, to hide the latency of an addition.
const STRANDS: usize = 4;

#[inline(always)]
unsafe fn normalize_with<L: Lanes>(x: *const f32, weight: &[f32], eps: f32, out: *mut f32) {
    let n = weight.len();
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
            out.add(at),
            n - at,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_scaled_to_unit_mean_square() {
        for n in [1, 7, 16, 64, 100, 1024] {
            let x: Vec<f32> = (0..3 * n).map(|i| (i as f32 * 0.3).sin() + 0.1).collect();
            let weight: Vec<f32> = (0..n).map(|i| 1.0 + i as f32 * 0.01).collect();
            let norm = Norm {
                weight: &weight,
                eps: 1e-5,
            };
            for x in x.chunks(n) {
                let mut out = vec![0.0; n];
                norm.apply(Tier::detect(), x, &mut out);
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
