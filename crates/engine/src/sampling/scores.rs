//! Passes over a row of scores: maximum, best few, sum of exponentials.
//!
//! A vocabulary has up to a few hundred thousand entries and every choice needs such a pass for every
//! token, so each is linear and written so that the compiler can vectorise it; those that every token takes are compiled
//! for the widest vectors there are ([`kernels::widest`]). All of them work in
//! blocks: the maxima of the blocks tell where the best scores can be, the sums where a draw falls.
//! Scores that are not a number count as impossible.

use kernels::{Pass, widest};

/// Scores looked at together. Large enough that walking the blocks costs little, small enough that
/// walking within one does.
pub(super) const BLOCK: usize = 64;

/// The same where only the best is looked for, because reducing lanes to one value is dear beside reading 64 scores.
const STRETCH: usize = 1024;

/// Values that are combined side by side: one or more registers of every machine we know.
const LANES: usize = 16;

/// A token and its score (or its weight).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) id: u32,
    pub(crate) value: f32,
}

impl Candidate {
    /// Best first; of equals, the lower id.
    pub(super) fn order(&self, other: &Self) -> std::cmp::Ordering {
        other
            .value
            .total_cmp(&self.value)
            .then(self.id.cmp(&other.id))
    }
}

/// The best score and the lowest id that has it; `None` when no token is possible.
pub(crate) fn best(row: &[f32]) -> Option<Candidate> {
    struct Best<'a>(&'a [f32]);

    impl Pass for Best<'_> {
        type Output = Option<Candidate>;

        #[inline(always)]
        fn run(self) -> Option<Candidate> {
            let Self(row) = self;
            let mut value = f32::NEG_INFINITY;
            let mut at = None;
            for (index, stretch) in row.chunks(STRETCH).enumerate() {
                let highest = maximum(stretch);
                if highest > value {
                    value = highest;
                    at = Some(index);
                }
            }
            let start = at? * STRETCH;
            let within = row[start..].iter().position(|&score| score == value)?;
            Some(Candidate {
                id: (start + within) as u32,
                value,
            })
        }
    }
    widest(Best(row))
}

/// Writes the weights of scores relative to the `highest`, which has 1, and their sums by blocks. What is not a number has 0.
pub(super) fn weigh(
    row: &[f32],
    highest: f32,
    temperature: f32,
    weights: &mut Vec<f32>,
    sums: &mut Vec<f64>,
) {
    struct Weigh<'a> {
        row: &'a [f32],
        highest: f32,
        scale: f32,
        weights: &'a mut [f32],
        sums: &'a mut [f64],
    }

    impl Pass for Weigh<'_> {
        type Output = ();

        #[inline(always)]
        fn run(self) {
            let blocks = self.row.chunks(BLOCK).zip(self.weights.chunks_mut(BLOCK));
            for ((scores, weights), sum_of) in blocks.zip(self.sums) {
                for (weight, &score) in weights.iter_mut().zip(scores) {
                    *weight = exp((score - self.highest) * self.scale);
                }
                *sum_of = sum(weights);
            }
        }
    }
    weights.resize(row.len(), 0.0);
    sums.resize(row.len().div_ceil(BLOCK), 0.0);
    widest(Weigh {
        row,
        highest,
        scale: 1.0 / temperature,
        weights,
        sums,
    });
}

/// The `count` best, best first. Fewer if fewer are possible.
pub(crate) fn best_few(row: &[f32], count: usize) -> Vec<Candidate> {
    let mut found = Vec::new();
    collect_best(row, count, &mut found);
    found.sort_unstable_by(Candidate::order);
    found
}

/// Puts the `count` best into `found`, in no particular order.
///
/// The `count`-th best block maximum is a bound: at least `count` scores reach it, so only scores that
/// do are looked at closely.
pub(super) fn collect_best(row: &[f32], count: usize, found: &mut Vec<Candidate>) {
    found.clear();
    if count == 0 {
        return;
    }
    let mut maxima: Vec<f32> = row.chunks(BLOCK).map(maximum).collect();
    let bound = if count <= maxima.len() {
        *maxima
            .select_nth_unstable_by(count - 1, |a, b| b.total_cmp(a))
            .1
    } else {
        f32::NEG_INFINITY
    };
    for (index, block) in row.chunks(BLOCK).enumerate() {
        if maximum(block) < bound {
            continue;
        }
        for (within, &value) in block.iter().enumerate() {
            if value >= bound && value > f32::NEG_INFINITY {
                found.push(Candidate {
                    id: (index * BLOCK + within) as u32,
                    value,
                });
            }
        }
    }
    if count < found.len() {
        found.select_nth_unstable_by(count - 1, Candidate::order);
        found.truncate(count);
    }
}

/// The place that a token has among all, from 1 on, in the order of [`Candidate::order`].
pub(crate) fn rank(row: &[f32], id: u32) -> usize {
    let id = (id as usize).min(row.len());
    let value = row.get(id).copied().unwrap_or(f32::NAN);
    // No score compares with one that is not a number: such a token comes behind all that are.
    let better = |score: f32| score > value || (value.is_nan() && !score.is_nan());
    let before = row[..id].iter().filter(|&&s| better(s) || s == value);
    let behind = row[id..].iter().filter(|&&s| better(s));
    1 + before.count() + behind.count()
}

#[inline(always)]
fn maximum(block: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = block.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &score) in lanes.iter_mut().zip(chunk) {
            // This comparison is false for NaN, which `f32::max` would not vectorise so well.
            *lane = if score > *lane { score } else { *lane };
        }
    }
    let mut highest = f32::NEG_INFINITY;
    for &score in lanes.iter().chain(rest) {
        highest = if score > highest { score } else { highest };
    }
    highest
}

/// Logarithm of the sum of exponentials: what makes scores into log-probabilities.
pub(crate) fn log_sum_exp(row: &[f32]) -> Option<f32> {
    let highest = best(row)?.value;
    if highest == f32::INFINITY {
        return Some(highest);
    }
    let (mut weights, mut sums) = (Vec::new(), Vec::new());
    weigh(row, highest, 1.0, &mut weights, &mut sums);
    let total: f64 = sums.into_iter().sum();
    Some(highest + total.ln() as f32)
}

/// Sum of a block, in a fixed order that has sixteen additions in flight.
#[inline(always)]
fn sum(block: &[f32]) -> f64 {
    let mut lanes = [0f32; LANES];
    let chunks = block.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &weight) in lanes.iter_mut().zip(chunk) {
            *lane += weight;
        }
    }
    lanes.iter().chain(rest).map(|&x| f64::from(x)).sum()
}

/// `e^x` for `x <= 0`, within 2 units in the last place; 0 for what is below every weight that
/// matters, and for what is not a number.
///
/// Our own, because it vectorises and because the text of a seeded request should not depend on the
/// machine's mathematical library.
#[inline(always)]
fn exp(x: f32) -> f32 {
    /// Below this the result would not be a normal number.
    const LOWEST: f32 = -87.0;
    /// Adding and subtracting it rounds to a whole number, which then stands in the low bits.
    const ROUND: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;

    let possible = x >= LOWEST;
    let x = if possible { x } else { 0.0 };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    let r = (x - whole * LN2_HIGH) - whole * LN2_LOW;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 0.166_666_65;
    p = p * r + 0.5;
    p = p * r * r + r + 1.0;
    let scale = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    if possible { p * scale } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn exp_is_exact_enough_everywhere() {
        for i in 0..87_000 {
            let x = -(i as f32) / 1000.0;
            let truth = f64::from(x).exp();
            let relative = (f64::from(exp(x)) - truth).abs() / truth;
            assert!(relative < 2.5e-7, "exp({x}) is off by {relative}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::NAN), 0.0);
    }

    #[test]
    fn the_lowest_id_wins_a_tie_and_nan_never_wins() {
        let mut row = vec![0.0; 3000];
        row[3] = f32::NAN;
        row[700] = 5.0;
        row[701] = 5.0;
        row[999] = 5.0;
        row[2999] = 5.0;
        assert_eq!(best(&row).map(|c| c.id), Some(700));
        assert_eq!(best(&[f32::NAN, f32::NEG_INFINITY]), None);
        assert_eq!(best(&[]), None);
    }

    proptest! {
        #[test]
        fn the_best_few_are_those_of_a_full_sort(
            row in prop::collection::vec(prop_oneof![
                4 => (-50i32..50).prop_map(|x| x as f32 / 4.0),
                1 => Just(f32::NEG_INFINITY),
                1 => Just(f32::NAN),
            ], 1..400),
            count in 0usize..450,
        ) {
            let mut sorted: Vec<Candidate> = row.iter().enumerate()
                .filter(|(_, v)| **v > f32::NEG_INFINITY)
                .map(|(id, &value)| Candidate { id: id as u32, value })
                .collect();
            sorted.sort_by(Candidate::order);
            prop_assert_eq!(best(&row), sorted.first().copied());
            for (place, candidate) in sorted.iter().enumerate() {
                prop_assert_eq!(rank(&row, candidate.id), place + 1);
            }
            for id in (0..row.len()).filter(|&id| row[id].is_nan() || row[id] == f32::NEG_INFINITY) {
                prop_assert!((sorted.len() + 1..=row.len()).contains(&rank(&row, id as u32)));
            }
            sorted.truncate(count);
            prop_assert_eq!(best_few(&row, count), sorted);
        }

        #[test]
        fn the_best_of_a_long_row_is_the_first_of_the_highest(
            row in prop::collection::vec((-50i32..50).prop_map(|x| x as f32), 1..3 * STRETCH),
        ) {
            let highest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let first = row.iter().position(|&score| score == highest).unwrap();
            prop_assert_eq!(best(&row), Some(Candidate { id: first as u32, value: highest }));
        }

        #[test]
        fn log_sum_exp_agrees_with_doubles(row in prop::collection::vec(-30f32..30.0, 1..300)) {
            let truth = row.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
            prop_assert!((f64::from(log_sum_exp(&row).unwrap()) - truth).abs() < 1e-5);
        }
    }
}
