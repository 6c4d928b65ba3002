//! From scores to one token: temperature, min-p, top-k, top-p, and the draw.
//!
//! Order as in vLLM: scores are divided by the temperature; min-p keeps tokens of at least `min_p` times
//! the best one's probability; top-k keeps the `k` best of these; top-p keeps the smallest set of the
//! best of these that has `p` of their mass. Of what is kept one token wins a race ([`speculation::verify::race`]):
//! a draft model that races with the same key picks the same winner wherever it agrees with the target, however
//! much it disagrees about other tokens. Nothing is ever sorted as a whole.

use speculation::PositionKey;
use speculation::verify::{race_among, race_weights};

use super::scores::{self, BLOCK, Candidate};

/// What to keep, and how even to make it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    pub(crate) temperature: f32,
    pub(crate) top_k: usize,
    pub(crate) top_p: f32,
    pub(crate) min_p: f32,
}

/// Memory that is reused from token to token.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    weights: Vec<f32>,
    sums: Vec<f64>,
    kept: Vec<Candidate>,
    order: Vec<Candidate>,
}

impl Choice {
    /// Chooses a token with the luck of `key`; `None` when none is possible.
    pub(crate) fn choose(
        &self,
        row: &[f32],
        key: PositionKey,
        scratch: &mut Scratch,
    ) -> Option<u32> {
        let best = scores::best(row)?;
        // Below this the second best has no chance, and the division might overflow.
        const GREEDY_BELOW: f32 = 1e-5;
        if self.temperature < GREEDY_BELOW || best.value == f32::INFINITY {
            return Some(best.id);
        }
        scratch.weigh(row, best.value, self.temperature);
        let keeps_all = self.top_p >= 1.0 && self.min_p <= 0.0;
        if keeps_all && (self.top_k == 0 || self.top_k >= row.len()) {
            return race_weights(&scratch.weights, key);
        }
        self.keep(scratch);
        race_among(scratch.kept.iter().map(|c| (c.id, c.value)), key)
    }

    fn keep(&self, scratch: &mut Scratch) {
        let Scratch {
            weights,
            sums,
            kept,
            order,
        } = scratch;
        let total = if self.top_k != 0 && self.top_k < weights.len() {
            scores::collect_best(weights, self.top_k, kept);
            kept.retain(|c| c.value > 0.0 && c.value >= self.min_p);
            kept.sort_unstable_by_key(|c| c.id);
            mass(kept)
        } else if self.min_p > 0.0 {
            collect_above(weights, self.min_p, kept);
            mass(kept)
        } else {
            let total: f64 = sums.iter().sum();
            // All tokens below this bound together have less than the mass that top-p cuts off.
            let bound = (1.0 - f64::from(self.top_p)) * total / weights.len() as f64;
            collect_above(weights, bound as f32, kept);
            total
        };
        if self.top_p < 1.0 {
            cut_to_mass(kept, order, f64::from(self.top_p) * total);
        }
    }
}

fn collect_above(weights: &[f32], bound: f32, kept: &mut Vec<Candidate>) {
    kept.clear();
    kept.extend(weights.iter().enumerate().filter_map(|(id, &value)| {
        let possible = value > 0.0 && value >= bound;
        possible.then_some(Candidate {
            id: id as u32,
            value,
        })
    }));
}

fn mass(kept: &[Candidate]) -> f64 {
    kept.iter().map(|c| f64::from(c.value)).sum()
}

impl Scratch {
    /// Weights relative to the best score, and their sums by blocks.
    fn weigh(&mut self, row: &[f32], highest: f32, temperature: f32) {
        let scale = 1.0 / temperature;
        self.weights.clear();
        self.weights
            .extend(row.iter().map(|&x| scores::exp((x - highest) * scale)));
        self.sums.clear();
        self.sums
            .extend(self.weights.chunks(BLOCK).map(scores::sum));
    }
}

/// Keeps the smallest set of the best whose mass reaches `wanted`, at least one. `kept` stays in order.
fn cut_to_mass(kept: &mut Vec<Candidate>, order: &mut Vec<Candidate>, wanted: f64) {
    order.clear();
    order.extend_from_slice(kept);
    let mut rest = order.as_mut_slice();
    let mut reached = 0f64;
    // Halve what is undecided: either its better half already reaches the mass, or all of it belongs.
    while rest.len() > 1 {
        let middle = (rest.len() - 1) / 2;
        rest.select_nth_unstable_by(middle, Candidate::order);
        let upper = mass(&rest[..=middle]);
        if reached + upper >= wanted {
            rest = &mut rest[..=middle];
        } else {
            reached += upper;
            rest = &mut rest[middle + 1..];
        }
    }
    if let Some(&worst) = rest.first() {
        kept.retain(|c| c.order(&worst).is_le());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const ALL: Choice = Choice {
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
    };

    fn reachable(choice: &Choice, row: &[f32]) -> BTreeSet<u32> {
        let mut scratch = Scratch::default();
        (0..20_000)
            .filter_map(|i| choice.choose(row, PositionKey(i), &mut scratch))
            .collect()
    }

    fn row_of(probabilities: &[f32]) -> Vec<f32> {
        probabilities.iter().map(|p| p.ln()).collect()
    }

    #[test]
    fn each_filter_keeps_what_its_definition_says() {
        let row = row_of(&[0.05, 0.4, 0.1, 0.3, 0.15]);
        let kept = |choice: Choice| reachable(&choice, &row).into_iter().collect::<Vec<_>>();
        assert_eq!(kept(ALL), [0, 1, 2, 3, 4]);
        assert_eq!(kept(Choice { top_k: 2, ..ALL }), [1, 3]);
        assert_eq!(kept(Choice { top_p: 0.69, ..ALL }), [1, 3]);
        assert_eq!(kept(Choice { top_p: 0.72, ..ALL }), [1, 3, 4]);
        assert_eq!(kept(Choice { top_p: 0.0, ..ALL }), [1]);
        assert_eq!(kept(Choice { min_p: 0.3, ..ALL }), [1, 3, 4]);
        assert_eq!(
            kept(Choice {
                top_k: 3,
                top_p: 0.5,
                ..ALL
            }),
            [1, 3],
            "top-p counts the mass that top-k left"
        );
        assert_eq!(
            kept(Choice {
                temperature: 0.0,
                ..ALL
            }),
            [1]
        );
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let row = row_of(&[0.1, 0.2, 0.3, 0.4]);
        let mut scratch = Scratch::default();
        for choice in [
            ALL,
            Choice { top_k: 4, ..ALL },
            Choice {
                top_p: 0.9999,
                ..ALL
            },
        ] {
            let mut counts = [0usize; 4];
            for key in 0..100_000 {
                let chosen = choice.choose(&row, PositionKey(key), &mut scratch);
                counts[chosen.unwrap() as usize] += 1;
            }
            // Chi-square with three degrees of freedom: above 16.3 once in a thousand.
            let expected = [10_000.0, 20_000.0, 30_000.0, 40_000.0];
            let off = counts.iter().zip(expected);
            let chi: f64 = off.map(|(&n, e)| (n as f64 - e).powi(2) / e).sum();
            assert!(chi < 16.3, "{counts:?}");
        }
    }

    #[test]
    fn impossible_scores_are_never_chosen_and_never_panic() {
        let mut row = vec![f32::NAN; 200];
        let mut scratch = Scratch::default();
        let strict = Choice {
            temperature: 0.7,
            top_k: 50,
            top_p: 0.9,
            min_p: 0.1,
        };
        assert_eq!(strict.choose(&row, PositionKey(5), &mut scratch), None);
        row[150] = -3.0;
        row[151] = f32::NEG_INFINITY;
        for choice in [ALL, strict] {
            assert_eq!(reachable(&choice, &row), BTreeSet::from([150]));
        }
        row[170] = f32::INFINITY;
        assert_eq!(reachable(&ALL, &row), BTreeSet::from([170]));
    }

    proptest! {
        #[test]
        fn the_nucleus_is_that_of_a_full_sort(
            weights in prop::collection::vec(1u32..1000, 1..200),
            p in 0.01f64..0.99,
        ) {
            let mut kept: Vec<Candidate> = weights.iter().enumerate()
                .map(|(id, &w)| Candidate { id: id as u32, value: w as f32 })
                .collect();
            let total = mass(&kept);
            let mut sorted = kept.clone();
            sorted.sort_by(Candidate::order);
            let mut reached = 0.0;
            let expected: BTreeSet<u32> = sorted.iter().take_while(|c| {
                let belongs = reached < p * total;
                reached += f64::from(c.value);
                belongs
            }).map(|c| c.id).collect();
            cut_to_mass(&mut kept, &mut Vec::new(), p * total);
            prop_assert_eq!(kept.iter().map(|c| c.id).collect::<BTreeSet<_>>(), expected);
        }

        #[test]
        fn the_fast_paths_choose_like_the_plain_one(
            row in prop::collection::vec(-8f32..8.0, 1..300),
            key in any::<u64>(),
        ) {
            let mut scratch = Scratch::default();
            let key = PositionKey(key);
            let plain = ALL.choose(&row, key, &mut scratch);
            let filtered = Choice { min_p: 1e-30, ..ALL }.choose(&row, key, &mut scratch);
            prop_assert_eq!(plain, filtered);
        }
    }
}
