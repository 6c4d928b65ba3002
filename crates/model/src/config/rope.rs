//! How fast each pair of a head's values turns with the position.

use crate::ModelError;

/// Rotary position embedding.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// The base of the frequencies.
    pub theta: f32,
    /// How they were stretched for longer contexts.
    pub scaling: RopeScaling,
}

/// A change to the frequencies, made by who trained the model.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// None.
    Default,
    /// All positions divided by a factor.
    Linear {
        /// The factor.
        factor: f32,
    },
    /// Llama 3.1: slow frequencies divided by `factor`, fast ones kept, a smooth passage in between.
    Llama3 {
        /// For the slowest frequencies.
        factor: f32,
        /// Wavelengths longer than `original_context / low_freq_factor` are slow.
        low_freq_factor: f32,
        /// Wavelengths shorter than `original_context / high_freq_factor` are fast.
        high_freq_factor: f32,
        /// Context before the stretch.
        original_context: f32,
    },
    /// One divisor for each frequency, as GGUF files store the result of Llama 3.1's rule.
    Divisors(Vec<f32>),
}

impl Rope {
    /// The turn per position of each of the `head_dim / 2` pairs, in radians.
    ///
    /// Unscaled it is `theta^(-2i / head_dim)`:
    /// ```
    /// use forespeak_model::{Rope, RopeScaling};
    ///
    /// let rope = Rope { theta: 10_000.0, scaling: RopeScaling::Default };
    /// assert_eq!(rope.inverse_frequencies(4), [1.0, 0.01]);
    /// let stretched = Rope { theta: 10_000.0, scaling: RopeScaling::Linear { factor: 2.0 } };
    /// assert_eq!(stretched.inverse_frequencies(4), [0.5, 0.005]);
    /// ```
    pub fn inverse_frequencies(&self, head_dim: usize) -> Vec<f32> {
        (0..head_dim / 2)
            .map(|pair| {
                let exponent = (2 * pair) as f32 / head_dim as f32;
                let unscaled = 1.0 / self.theta.powf(exponent);
                self.scaling.apply(unscaled, pair)
            })
            .collect()
    }

    pub(super) fn checked(&self, file: &str) -> Result<(), ModelError> {
        let scaling_numbers: &[f32] = match &self.scaling {
            RopeScaling::Default => &[],
            RopeScaling::Linear { factor } => &[*factor],
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_context,
            } => {
                if low_freq_factor >= high_freq_factor {
                    return Err(ModelError::malformed(
                        file,
                        "rope scaling has its low_freq_factor above its high_freq_factor",
                    ));
                }
                &[
                    *factor,
                    *low_freq_factor,
                    *high_freq_factor,
                    *original_context,
                ]
            }
            RopeScaling::Divisors(divisors) => divisors,
        };
        let sound = |number: &f32| number.is_finite() && *number > 0.0;
        if !sound(&self.theta) || !scaling_numbers.iter().all(sound) {
            return Err(ModelError::malformed(
                file,
                "rope theta and scaling factors must be positive numbers",
            ));
        }
        Ok(())
    }
}

impl RopeScaling {
    fn apply(&self, frequency: f32, pair: usize) -> f32 {
        match self {
            Self::Default => frequency,
            Self::Linear { factor } => frequency / factor,
            Self::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_context,
            } => {
                let wavelength = 2.0 * std::f32::consts::PI / frequency;
                if wavelength < original_context / high_freq_factor {
                    frequency
                } else if wavelength > original_context / low_freq_factor {
                    frequency / factor
                } else {
                    let fast = (original_context / wavelength - low_freq_factor)
                        / (high_freq_factor - low_freq_factor);
                    (1.0 - fast) * frequency / factor + fast * frequency
                }
            }
            Self::Divisors(divisors) => frequency / divisors.get(pair).copied().unwrap_or(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama3_keeps_fast_frequencies_and_divides_slow_ones() {
        let rope = |scaling| Rope {
            theta: 500_000.0,
            scaling,
        };
        let plain = rope(RopeScaling::Default).inverse_frequencies(64);
        let scaled = rope(RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context: 8192.0,
        })
        .inverse_frequencies(64);
        assert_eq!(plain[0], scaled[0]);
        assert_eq!(plain[31] / 8.0, scaled[31]);
        assert!(
            scaled
                .iter()
                .zip(&plain)
                .all(|(s, p)| s <= p && *s >= p / 8.0)
        );
    }
}
