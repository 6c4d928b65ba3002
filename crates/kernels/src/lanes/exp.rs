//! The exponential function on lanes: one polynomial for every tier.

use super::Lanes;

/// Below this e^x leaves the range of normal f32 values; the result is zero.
const UNDERFLOW: f32 = -87.336_54;
/// Above this e^x would need the exponent 128.
const OVERFLOW: f32 = 88.376_26;
/// ln 2, cut to few bits so that its products with small integers are exact, and what the cut left.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2, highest power first.
const COEFFICIENTS: [f32; 6] = [
    1.987_569_1e-4,
    1.398_199_9e-3,
    8.333_452e-3,
    4.166_579_6e-2,
    1.666_666_5e-1,
    0.5,
];

/// e^x to about two units in the last place; exactly 1 at 0, 0 from -87.3 down (so -inf masks), not-a-number kept.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
pub(crate) unsafe fn exp<L: Lanes>(x: L) -> L {
    let clamped = L::splat(OVERFLOW).min(L::splat(UNDERFLOW).max(x));
    let power = clamped.mul(L::splat(std::f32::consts::LOG2_E)).round();
    let rest = power.fma(L::splat(-LN2_HIGH), clamped);
    let rest = power.fma(L::splat(-LN2_LOW), rest);
    let mut polynomial = L::splat(COEFFICIENTS[0]);
    for coefficient in &COEFFICIENTS[1..] {
        polynomial = polynomial.fma(rest, L::splat(*coefficient));
    }
    let mantissa = polynomial.fma(rest.mul(rest), rest).add(L::splat(1.0));
    mantissa
        .mul(power.exp2_integral())
        .zero_where_less(x, L::splat(UNDERFLOW))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::{LANES, Scalar};

    fn scalar_exp(x: f32) -> f32 {
        let mut out = [0.0; LANES];
        // SAFETY: the scalar tier needs no CPU feature; `out` holds sixteen values.
        unsafe { exp(Scalar::splat(x)).store(out.as_mut_ptr()) };
        out[0]
    }

    #[test]
    fn is_close_to_the_true_exponential_over_its_whole_range() {
        for step in -8700..8800 {
            let x = step as f32 / 100.0;
            let truth = f64::from(x).exp();
            let error = (f64::from(scalar_exp(x)) - truth).abs() / truth;
            assert!(error < 2.5e-7, "e^{x}: relative error {error}");
        }
    }

    #[test]
    fn edges_are_exact() {
        assert_eq!(scalar_exp(0.0), 1.0);
        assert_eq!(scalar_exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(scalar_exp(-1000.0), 0.0);
        assert!(scalar_exp(f32::INFINITY).is_finite());
        assert!(scalar_exp(f32::NAN).is_nan());
    }
}
