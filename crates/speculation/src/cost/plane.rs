//! `a + b batch + c drafted`, fitted to the medians of cells: the answer where nothing was measured.

/// Guesses for the slopes, as fractions of the cost of the smallest step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prior {
    pub(crate) batch_slope: f64,
    pub(crate) drafted_slope: f64,
}

/// A measured point of the plane.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) batch: f64,
    pub(super) drafted: f64,
    pub(super) seconds: f64,
    pub(super) weight: f64,
}

/// The fitted plane.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Plane {
    base: f64,
    batch: f64,
    drafted: f64,
}

/// Samples' worth of trust in the prior slopes. Little: one cell at another depth outweighs it.
const PRIOR_WEIGHT: f64 = 0.3;

impl Plane {
    /// A plane of the prior's slopes with base 1.
    pub(super) fn unit(prior: Prior) -> Self {
        Self {
            base: 1.0,
            batch: prior.batch_slope,
            drafted: prior.drafted_slope,
        }
    }

    /// Weighted least squares on relative errors, drawn towards the prior. The cost of a larger step cannot
    /// be less, so slopes are not negative.
    pub(super) fn fit(points: &[Point], prior: Prior) -> Self {
        let weight: f64 = points.iter().map(|p| p.weight).sum();
        if weight <= 0.0 {
            return Self::unit(prior);
        }
        let unit = Self::unit(prior);
        let scale = points
            .iter()
            .map(|p| p.weight * p.seconds / unit.at(p.batch, p.drafted))
            .sum::<f64>()
            / weight;
        let guess = [
            scale,
            scale * prior.batch_slope,
            scale * prior.drafted_slope,
        ];
        let mut held = [false; 3];
        loop {
            let solved = solve(points, guess, scale, held);
            let negative = (0..3).find(|&i| !held[i] && solved[i] < 0.0);
            let Some(index) = negative else {
                let [base, batch, drafted] = solved;
                return Self {
                    base,
                    batch,
                    drafted,
                };
            };
            held[index] = true;
        }
    }

    pub(super) fn at(&self, batch: f64, drafted: f64) -> f64 {
        self.base + self.batch * batch + self.drafted * drafted
    }
}

/// Minimises the squared error with the coefficients in `held` at 0.
fn solve(points: &[Point], guess: [f64; 3], scale: f64, held: [bool; 3]) -> [f64; 3] {
    let mut matrix = [[0.0f64; 3]; 3];
    let mut right = [0.0f64; 3];
    for point in points {
        let row = [1.0, point.batch, point.drafted];
        // Relative errors: a second too much matters more for a short step.
        let weight = point.weight / (point.seconds * point.seconds).max(f64::MIN_POSITIVE);
        for i in 0..3 {
            for j in 0..3 {
                matrix[i][j] += weight * row[i] * row[j];
            }
            right[i] += weight * row[i] * point.seconds;
        }
    }
    let trust = PRIOR_WEIGHT / (scale * scale).max(f64::MIN_POSITIVE);
    for i in 0..3 {
        matrix[i][i] += trust;
        right[i] += trust * guess[i];
        if held[i] {
            matrix[i] = [0.0; 3];
            for row in &mut matrix {
                row[i] = 0.0;
            }
            matrix[i][i] = 1.0;
            right[i] = 0.0;
        }
    }
    eliminate(matrix, right)
}

/// Gauss on a symmetric positive matrix: the prior on the diagonal keeps pivots away from 0.
fn eliminate(mut matrix: [[f64; 3]; 3], mut right: [f64; 3]) -> [f64; 3] {
    for pivot in 0..3 {
        let upper = matrix[pivot];
        for row in pivot + 1..3 {
            let factor = matrix[row][pivot] / upper[pivot];
            for (value, above) in matrix[row].iter_mut().zip(upper) {
                *value -= factor * above;
            }
            right[row] -= factor * right[pivot];
        }
    }
    let mut solved = [0.0; 3];
    for row in (0..3).rev() {
        let known: f64 = (row + 1..3).map(|c| matrix[row][c] * solved[c]).sum();
        solved[row] = (right[row] - known) / matrix[row][row];
    }
    solved
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIOR: Prior = Prior {
        batch_slope: 0.1,
        drafted_slope: 0.1,
    };

    fn points(of: impl Fn(f64, f64) -> f64) -> Vec<Point> {
        let mut points = Vec::new();
        for batch in [1.0, 2.0, 8.0] {
            for drafted in [0.0, 4.0, 8.0] {
                points.push(Point {
                    batch,
                    drafted,
                    seconds: of(batch, drafted),
                    weight: 9.0,
                });
            }
        }
        points
    }

    #[test]
    fn a_plane_is_found_again() {
        let plane = Plane::fit(&points(|b, d| 0.02 + 0.001 * b + 0.0005 * d), PRIOR);
        for (batch, drafted) in [(1.0, 0.0), (4.0, 2.0), (16.0, 32.0)] {
            let truth = 0.02 + 0.001 * batch + 0.0005 * drafted;
            let found = plane.at(batch, drafted);
            assert!((found / truth - 1.0).abs() < 0.02, "{found} for {truth}");
        }
    }

    #[test]
    fn slopes_are_never_negative() {
        let plane = Plane::fit(&points(|b, d| 0.02 - 0.001 * b - 0.0005 * d), PRIOR);
        assert!(plane.at(2.0, 0.0) >= plane.at(1.0, 0.0));
        assert!(plane.at(1.0, 9.0) >= plane.at(1.0, 0.0));
    }

    #[test]
    fn one_point_sets_the_scale_and_the_prior_the_slopes() {
        let point = Point {
            batch: 1.0,
            drafted: 0.0,
            seconds: 5.5,
            weight: 3.0,
        };
        let plane = Plane::fit(&[point], PRIOR);
        let (at, deeper) = (plane.at(1.0, 0.0), plane.at(1.0, 2.0));
        assert!((at - 5.5).abs() < 0.05);
        assert!((deeper / at - 1.0 - 0.2 / 1.1).abs() < 0.02);
    }
}
