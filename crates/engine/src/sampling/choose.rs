//! From scores to one token: temperature, min-p, top-k, top-p, and the draw.
//!
//! Order as in vLLM: scores are divided by the temperature; min-p keeps tokens of at least `min_p` times
//! the best one's probability; top-k keeps the `k` best of these; top-p keeps the smallest set of the
//! best of these that has `p` of their mass. Of what is kept one token wins a race ([`speculation::verify::race`]):
//! a draft model that races with the same key picks the same winner wherever it agrees with the target, however
//! much it disagrees about other tokens. Nothing is ever sorted as a whole.

use kernels::{Pass, widest};
use speculation::PositionKey;
use speculation::verify::{
    Distribution, Weighted, accepts_draft, instead_of_draft, race_among, race_weights,
    speculative_draft,
};

use super::scores::{self, BLOCK, Candidate};

/// Temperatures below choose the best token: the second best has no chance, and the division might overflow.
const GREEDY_BELOW: f32 = 1e-5;

/// Least weight of a token that a draft is drawn from, of the best one's: what is less likely is hardly ever drawn.
const LEAST_ODDS: f32 = 1.0 / 4096.0;

/// Most tokens that a draft is drawn from. Their odds are kept until the draft is verified, in 2 KB.
const MOST_ODDS: usize = 256;

/// Relative error of a block's sum, at most.
const SUM_ERROR: f64 = 1e-5;

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

/// A race of all tokens.
struct Race<'a> {
    weights: &'a [f32],
    favourite: u32,
    key: PositionKey,
}

impl Pass for Race<'_> {
    type Output = Option<u32>;

    #[inline(always)]
    fn run(self) -> Option<u32> {
        race_weights(self.weights, self.favourite, self.key)
    }
}

/// Which tokens can be chosen.
enum Weights {
    /// This one.
    One(u32),
    /// All, by `weights`, of which this one has the largest.
    All { best: u32 },
    /// Those in `kept`.
    Kept,
}

impl Choice {
    /// Chooses a token with the luck of `key`; `None` when none is possible.
    pub(crate) fn choose(
        &self,
        row: &[f32],
        key: PositionKey,
        scratch: &mut Scratch,
    ) -> Option<u32> {
        match self.weigh(row, scratch)? {
            Weights::One(id) => Some(id),
            Weights::All { best } => widest(Race {
                weights: &scratch.weights,
                favourite: best,
                key,
            }),
            Weights::Kept => race_among(scratch.kept.iter().map(|c| (c.id, c.value)), key),
        }
    }

    /// Draws a token with the luck of `key` from the likeliest that can be chosen, and gives them with it.
    pub(crate) fn draw(
        &self,
        row: &[f32],
        key: PositionKey,
        scratch: &mut Scratch,
    ) -> Option<(u32, Distribution)> {
        let likeliest = Self {
            min_p: self.min_p.max(LEAST_ODDS),
            ..*self
        };
        let weights = likeliest.weigh(row, scratch)?;
        if scratch.kept.len() > MOST_ODDS {
            let kept = &mut scratch.kept;
            kept.select_nth_unstable_by(MOST_ODDS - 1, Candidate::order);
            kept.truncate(MOST_ODDS);
            kept.sort_unstable_by_key(|c| c.id);
        }
        let odds = scratch.distribution(&weights);
        Some((speculative_draft(&odds, key)?, odds))
    }

    /// Chooses where `drafted` was drawn from `odds`: a token that [`Choice::choose`] would choose as often.
    pub(crate) fn judge(
        &self,
        row: &[f32],
        drafted: u32,
        odds: &Distribution,
        key: PositionKey,
        scratch: &mut Scratch,
    ) -> Option<u32> {
        let weights = self.weigh(row, scratch)?;
        let probability = scratch.probability(&weights, drafted);
        if accepts_draft(probability, odds, drafted, key) {
            return Some(drafted);
        }
        instead_of_draft(&scratch.distribution(&weights), odds, key)
    }

    /// Whether there is nothing to draw.
    pub(crate) fn is_greedy(&self) -> bool {
        self.temperature < GREEDY_BELOW
    }

    /// Leaves the weights of the tokens that can be chosen in `scratch`.
    fn weigh(&self, row: &[f32], scratch: &mut Scratch) -> Option<Weights> {
        let best = scores::best(row)?;
        if self.is_greedy() || best.value == f32::INFINITY {
            return Some(Weights::One(best.id));
        }
        let (weights, sums) = (&mut scratch.weights, &mut scratch.sums);
        scores::weigh(row, best.value, self.temperature, weights, sums);
        let keeps_all = self.top_p >= 1.0 && self.min_p <= 0.0;
        if keeps_all && (self.top_k == 0 || self.top_k >= row.len()) {
            return Some(Weights::All { best: best.id });
        }
        self.keep(scratch);
        Some(Weights::Kept)
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
            collect_above(weights, sums, self.min_p, kept);
            mass(kept)
        } else {
            let total: f64 = sums.iter().sum();
            // All tokens below this bound together have less than the mass that top-p cuts off.
            let bound = (1.0 - f64::from(self.top_p)) * total / weights.len() as f64;
            collect_above(weights, sums, bound as f32, kept);
            total
        };
        if self.top_p < 1.0 {
            cut_to_mass(kept, order, f64::from(self.top_p) * total);
        }
    }
}

/// Collects the tokens of at least so much weight. A block whose `sums` is less has none.
fn collect_above(weights: &[f32], sums: &[f64], bound: f32, kept: &mut Vec<Candidate>) {
    kept.clear();
    for (index, (block, &sum)) in weights.chunks(BLOCK).zip(sums).enumerate() {
        if sum * (1.0 + SUM_ERROR) < f64::from(bound) {
            continue;
        }
        let ids = (index * BLOCK) as u32..;
        kept.extend(ids.zip(block).filter_map(|(id, &value)| {
            let possible = value > 0.0 && value >= bound;
            possible.then_some(Candidate { id, value })
        }));
    }
}

fn mass(kept: &[Candidate]) -> f64 {
    kept.iter().map(|c| f64::from(c.value)).sum()
}

impl Scratch {
    /// Probability of a token.
    fn probability(&self, weights: &Weights, token: u32) -> f64 {
        match weights {
            Weights::One(id) => f64::from(u8::from(*id == token)),
            Weights::All { .. } => {
                let weight = self.weights.get(token as usize).copied().unwrap_or(0.0);
                f64::from(weight) / self.sums.iter().sum::<f64>()
            }
            Weights::Kept => {
                let at = self.kept.binary_search_by_key(&token, |c| c.id).ok();
                let kept = at.and_then(|at| self.kept.get(at));
                kept.map_or(0.0, |c| f64::from(c.value) / mass(&self.kept))
            }
        }
    }

    /// All that can be chosen.
    fn distribution(&self, weights: &Weights) -> Distribution {
        match weights {
            Weights::One(id) => Distribution::point(*id),
            Weights::All { .. } => Distribution::from_weights(&self.weights),
            Weights::Kept => Distribution::from_entries(self.kept.iter().map(|c| Weighted {
                id: c.id,
                weight: c.value,
            })),
        }
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
    fn drawn_and_judged_tokens_follow_the_probabilities_of_the_judge() {
        let drafter = row_of(&[0.4, 0.3, 0.1, 0.1, 0.1]);
        let mut row = row_of(&[0.1, 0.2, 0.3, 0.4]);
        row.push(f32::NAN);
        let mut scratch = Scratch::default();
        for choice in [ALL, Choice { top_k: 4, ..ALL }] {
            let mut counts = [0usize; 4];
            let mut kept = 0;
            for key in 0..100_000 {
                let luck = PositionKey(key);
                let (drafted, odds) = choice.draw(&drafter, luck, &mut scratch).unwrap();
                let chosen = choice.judge(&row, drafted, &odds, luck, &mut scratch);
                counts[chosen.unwrap() as usize] += 1;
                kept += usize::from(chosen == Some(drafted));
            }
            let expected = [10_000.0, 20_000.0, 30_000.0, 40_000.0];
            let off = counts.iter().zip(expected);
            let chi: f64 = off.map(|(&n, e)| (n as f64 - e).powi(2) / e).sum();
            assert!(chi < 16.3, "{counts:?}");
            // As often as the distributions overlap: 0.5, or a little more with the tail of the drafter gone.
            assert!((49_000..56_500).contains(&kept), "{kept}");
        }
    }

    #[test]
    fn odds_are_few_however_even_the_scores() {
        let row = vec![0.0; 10 * MOST_ODDS];
        let mut scratch = Scratch::default();
        let (drafted, odds) = ALL.draw(&row, PositionKey(3), &mut scratch).unwrap();
        assert_eq!(odds.entries().len(), MOST_ODDS);
        assert!(odds.probability(drafted) > 0.0);
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
