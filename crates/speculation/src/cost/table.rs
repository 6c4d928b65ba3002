//! Monotone tables: pool adjacent violators in one direction, then in the other.
//!
//! The second pass keeps what the first one made: isotonic regression with equal weights is itself
//! monotone, so rows that were ordered stay ordered.

/// Values over a grid of batches (rows) and numbers of drafted tokens (columns).
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    batches: Vec<usize>,
    drafted: Vec<usize>,
    /// Row after row.
    values: Vec<f64>,
}

impl Table {
    /// Fills the grid with `value` and makes it monotone; `weight` says how much a row's value is to be
    /// trusted against those of other rows.
    pub(super) fn new(
        batches: Vec<usize>,
        drafted: Vec<usize>,
        evaluate: impl Fn(usize, usize) -> (f64, f64),
    ) -> Self {
        let columns = drafted.len();
        let mut values = vec![0.0; batches.len() * columns];
        for (column, &d) in drafted.iter().enumerate() {
            let along: Vec<(f64, f64)> = batches.iter().map(|&b| evaluate(b, d)).collect();
            for (row, value) in ascending(&along).into_iter().enumerate() {
                if let Some(place) = values.get_mut(row * columns + column) {
                    *place = value;
                }
            }
        }
        for row in values.chunks_mut(columns.max(1)) {
            let along: Vec<(f64, f64)> = row.iter().map(|&v| (v, 1.0)).collect();
            row.copy_from_slice(&ascending(&along));
        }
        Self {
            batches,
            drafted,
            values,
        }
    }

    /// Whether a point lies in the grid.
    pub(super) fn covers(&self, batch: usize, drafted: usize) -> bool {
        let within = |grid: &[usize], x| {
            grid.first().is_some_and(|&first| first <= x)
                && grid.last().is_some_and(|&last| x <= last)
        };
        within(&self.batches, batch) && within(&self.drafted, drafted)
    }

    /// Bilinear between the points of the grid; at its border beyond it.
    pub(super) fn at(&self, batch: usize, drafted: usize) -> f64 {
        let (row, down) = place(&self.batches, batch);
        let (column, right) = place(&self.drafted, drafted);
        let value = |r: usize, c: usize| {
            let r = r.min(self.batches.len().saturating_sub(1));
            let c = c.min(self.drafted.len().saturating_sub(1));
            self.values
                .get(r * self.drafted.len() + c)
                .copied()
                .unwrap_or(0.0)
        };
        let along = |r| value(r, column) * (1.0 - right) + value(r, column + 1) * right;
        along(row) * (1.0 - down) + along(row + 1) * down
    }
}

/// The interval of an ascending grid that `x` is in, and how far into it.
fn place(grid: &[usize], x: usize) -> (usize, f64) {
    let after = grid.partition_point(|&g| g <= x);
    let Some(before) = after.checked_sub(1) else {
        return (0, 0.0);
    };
    match (grid.get(before), grid.get(after)) {
        (Some(&low), Some(&high)) => (before, (x - low) as f64 / (high - low) as f64),
        _ => (before, 0.0),
    }
}

/// The ascending sequence nearest to the given (value, weight) pairs.
fn ascending(values: &[(f64, f64)]) -> Vec<f64> {
    let mut pools: Vec<(f64, f64, usize)> = Vec::new();
    for &(value, weight) in values {
        let mut pool = (value, weight, 1);
        while let Some(&(before, its_weight, count)) = pools.last() {
            if before <= pool.0 {
                break;
            }
            let total = its_weight + pool.1;
            pool = (
                (before * its_weight + pool.0 * pool.1) / total,
                total,
                pool.2 + count,
            );
            pools.pop();
        }
        pools.push(pool);
    }
    pools
        .into_iter()
        .flat_map(|(value, _, count)| std::iter::repeat_n(value, count))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn violators_are_averaged_and_nobody_else_is_touched() {
        let values = [(1.0, 1.0), (4.0, 1.0), (2.0, 3.0), (5.0, 1.0)];
        assert_eq!(ascending(&values), [1.0, 2.5, 2.5, 5.0]);
    }

    proptest! {
        #[test]
        fn more_work_never_seems_cheaper(
            noise in prop::collection::vec((0.1f64..10.0, 0.1f64..9.0), 30),
        ) {
            let batches = vec![1, 2, 4, 8, 16];
            let drafted = vec![0, 1, 2, 4, 8, 16];
            let table = Table::new(batches.clone(), drafted.clone(), |b, d| {
                let row = batches.iter().position(|&x| x == b).unwrap();
                let column = drafted.iter().position(|&x| x == d).unwrap();
                noise[row * 6 + column]
            });
            for batch in 1..=20 {
                for d in 0..20 {
                    prop_assert!(table.at(batch, d) <= table.at(batch, d + 1) + 1e-9);
                    prop_assert!(table.at(batch, d) <= table.at(batch + 1, d) + 1e-9);
                }
            }
        }
    }
}
