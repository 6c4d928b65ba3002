//! When requests are due.

use std::time::Duration;

use simulator::rng::Rng;

/// Gaps between arrivals: gamma distributed with this mean and shape.
///
/// Shape 1 is a Poisson process, more is more even (infinity is a constant rate), less is burstier.
#[derive(Clone, Copy, Debug)]
pub struct Gaps {
    /// Requests per second.
    pub rate: f64,
    /// The shape.
    pub burstiness: f64,
}

impl Gaps {
    /// When each of `count` requests is due. A rate that is no positive number makes all due at once.
    pub fn times(self, count: usize, seed: u64) -> Vec<Duration> {
        let mut rng = Rng::new(seed);
        let mut at = 0.0;
        (0..count)
            .map(|_| {
                let due = Duration::try_from_secs_f64(at).unwrap_or_default();
                at += self.gap(&mut rng);
                due
            })
            .collect()
    }

    fn gap(self, rng: &mut Rng) -> f64 {
        if !(self.rate.is_finite() && self.rate > 0.0) {
            return 0.0;
        }
        let mean = 1.0 / self.rate;
        if self.burstiness == 1.0 {
            return rng.exponential(mean);
        }
        if !self.burstiness.is_finite() || self.burstiness <= 0.0 {
            return mean;
        }
        gamma(self.burstiness, rng) * mean / self.burstiness
    }
}

/// Gamma with this shape and scale 1, by Marsaglia and Tsang's rejection from a normal.
fn gamma(shape: f64, rng: &mut Rng) -> f64 {
    if shape < 1.0 {
        return gamma(shape + 1.0, rng) * rng.unit().powf(1.0 / shape);
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(rng);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && rng.unit().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

fn normal(rng: &mut Rng) -> f64 {
    (-2.0 * rng.unit().ln()).sqrt() * (std::f64::consts::TAU * rng.unit()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(burstiness: f64) -> f64 {
        let gaps = Gaps {
            rate: 50.0,
            burstiness,
        };
        gaps.times(20_001, 7).pop().unwrap().as_secs_f64()
    }

    #[test]
    fn all_shapes_have_the_rate_that_was_asked_for() {
        for burstiness in [0.3, 1.0, 4.0, f64::INFINITY] {
            let seconds = last(burstiness);
            assert!(
                (seconds / 400.0 - 1.0).abs() < 0.05,
                "{burstiness}: {seconds}"
            );
        }
    }

    #[test]
    fn without_a_rate_all_are_due_at_once() {
        let gaps = Gaps {
            rate: f64::INFINITY,
            burstiness: 1.0,
        };
        assert!(gaps.times(10, 1).iter().all(Duration::is_zero));
    }
}
