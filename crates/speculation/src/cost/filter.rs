//! What is believed of unknowns of which only sums are ever seen: a Kalman filter.
//!
//! What a step takes is how fast the machine is now, times what such a step costs. Neither is ever seen alone, and the first of
//! them never stands still. So for each unknown there is a mean and, for each pair of them, how they are believed to err
//! together. A measurement of a sum then moves every unknown as far as it is the one to blame: the machine's tempo, which is known
//! least, most of all; a cost that was measured beside others a moment ago hardly; and a cost that nobody has seen for a minute
//! clearly. What is measured over and over without anything beside it moves nothing but the tempo.

/// Variances never fall below: what is known exactly could never be learnt again.
const LEAST_VARIANCE: f64 = 1e-9;

/// A part of a sum: which unknown, and how many times.
pub(super) type Term = (usize, f64);

/// Means and covariances.
#[derive(Debug, Clone, Default)]
pub(super) struct Filter {
    means: Vec<f64>,
    /// Row after row.
    covariances: Vec<f64>,
}

impl Filter {
    /// One more unknown, which has nothing to do with the others; gives its place.
    pub(super) fn add(&mut self, mean: f64, deviation: f64) -> usize {
        let before = self.means.len();
        let mut wider = Vec::with_capacity((before + 1) * (before + 1));
        for row in self.covariances.chunks(before.max(1)) {
            wider.extend_from_slice(row);
            wider.push(0.0);
        }
        wider.resize((before + 1) * (before + 1), 0.0);
        self.covariances = wider;
        self.means.push(mean);
        self.forget(before, mean, deviation);
        before
    }

    /// Nothing is known of this unknown any more but a guess.
    pub(super) fn forget(&mut self, place: usize, mean: f64, deviation: f64) {
        let count = self.means.len();
        for other in 0..count {
            for at in [place * count + other, other * count + place] {
                if let Some(covariance) = self.covariances.get_mut(at) {
                    *covariance = 0.0;
                }
            }
        }
        self.set_mean(place, mean);
        self.loosen(place, deviation * deviation);
    }

    pub(super) fn mean(&self, place: usize) -> f64 {
        self.means.get(place).copied().unwrap_or(0.0)
    }

    pub(super) fn set_mean(&mut self, place: usize, mean: f64) {
        if let Some(place) = self.means.get_mut(place) {
            *place = mean;
        }
    }

    /// It may have changed meanwhile, by so much variance.
    pub(super) fn loosen(&mut self, place: usize, variance: f64) {
        let diagonal = place * (self.means.len() + 1);
        if let Some(own) = self.covariances.get_mut(diagonal) {
            *own += variance;
        }
    }

    /// All from a place on may have.
    pub(super) fn loosen_all(&mut self, from: usize, variance: f64) {
        (from..self.means.len()).for_each(|place| self.loosen(place, variance));
    }

    /// Variance of a sum.
    pub(super) fn variance(&self, terms: &[Term]) -> f64 {
        let count = self.means.len();
        let mut sum = 0.0;
        for &(a, times_a) in terms {
            for &(b, times_b) in terms {
                let covariance = self.covariances.get(a * count + b);
                sum += times_a * times_b * covariance.copied().unwrap_or(0.0);
            }
        }
        sum.max(LEAST_VARIANCE)
    }

    /// A sum was measured to be `off` from what its means say, with an error of this variance.
    pub(super) fn learn(&mut self, terms: &[Term], off: f64, noise: f64) {
        let count = self.means.len();
        let total = self.variance(terms) + noise;
        let mut with_sum = vec![0.0; count];
        for &(place, times) in terms {
            let row = self.covariances.chunks(count.max(1)).nth(place);
            for (sum, covariance) in with_sum.iter_mut().zip(row.unwrap_or_default()) {
                *sum += times * covariance;
            }
        }
        for (mean, covariance) in self.means.iter_mut().zip(&with_sum) {
            *mean += covariance / total * off;
        }
        let rows = self.covariances.chunks_mut(count.max(1));
        for (index, (row, mine)) in rows.zip(&with_sum).enumerate() {
            let share = mine / total;
            for (covariance, theirs) in row.iter_mut().zip(&with_sum) {
                *covariance -= share * theirs;
            }
            if let Some(own) = row.get_mut(index) {
                *own = own.max(LEAST_VARIANCE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::Noise;

    const NOISE: f64 = 0.08;

    /// A tempo that wanders and costs that do not.
    struct Machine {
        filter: Filter,
        tempo: f64,
        costs: [f64; 3],
        noise: Noise,
    }

    impl Machine {
        fn new() -> Self {
            let mut filter = Filter::default();
            filter.add(0.0, 0.01);
            let costs = [0.0, 0.2, 0.5];
            for _ in costs {
                filter.add(0.1, 0.3);
            }
            Self {
                filter,
                tempo: 0.0,
                costs,
                noise: Noise::new(3),
            }
        }

        fn step(&mut self, kind: usize) {
            self.tempo += 0.015 * self.noise.normal();
            let took = self.tempo + self.costs[kind] + NOISE * self.noise.normal();
            let terms = [(0, 1.0), (1 + kind, 1.0)];
            self.filter.loosen(0, 0.015 * 0.015);
            let off = took - self.filter.mean(0) - self.filter.mean(1 + kind);
            self.filter.learn(&terms, off, NOISE * NOISE);
        }

        fn difference(&self, a: usize, b: usize) -> f64 {
            let found = self.filter.mean(1 + a) - self.filter.mean(1 + b);
            found - (self.costs[a] - self.costs[b])
        }
    }

    #[test]
    fn costs_are_told_from_a_tempo_that_wanders() {
        let mut machine = Machine::new();
        (0..600).for_each(|step| machine.step(step % 3));
        assert!(machine.difference(1, 0).abs() < 0.03);
        assert!(machine.difference(2, 0).abs() < 0.03);
        let deviation = machine.filter.variance(&[(3, 1.0), (1, -1.0)]).sqrt();
        assert!(deviation < 0.02, "{deviation}");
    }

    #[test]
    fn what_is_seen_alone_for_long_moves_the_tempo_and_no_cost() {
        let mut machine = Machine::new();
        (0..300).for_each(|step| machine.step(step % 3));
        let before = machine.difference(1, 2);
        (0..5_000).for_each(|_| machine.step(1));
        assert!((machine.difference(1, 2) - before).abs() < 0.01);
        let tempo = machine.filter.mean(0) + machine.filter.mean(2);
        assert!((tempo - machine.tempo - machine.costs[1]).abs() < 0.1);
    }

    #[test]
    fn what_may_have_changed_is_learnt_again_and_the_others_are_not() {
        let mut machine = Machine::new();
        (0..300).for_each(|step| machine.step(step % 3));
        machine.costs[2] = 0.3;
        machine.filter.loosen(3, 0.04);
        (0..60).for_each(|step| machine.step(step % 3));
        assert!(machine.difference(2, 0).abs() < 0.06);
        assert!(machine.difference(1, 0).abs() < 0.04);
    }

    #[test]
    fn a_new_unknown_changes_nothing_of_the_others() {
        let mut machine = Machine::new();
        (0..100).for_each(|step| machine.step(step % 3));
        let terms = [(0, 1.0), (2, 1.0)];
        let before = machine.filter.variance(&terms);
        let place = machine.filter.add(0.7, 0.2);
        assert_eq!(machine.filter.variance(&terms), before);
        let own = machine.filter.variance(&[(place, 1.0)]);
        assert!((own - 0.04).abs() < 1e-12 && machine.filter.mean(place) == 0.7);
    }
}
