//! The best depths for a batch: most expected tokens for the time.
//!
//! Every token that could be drafted is an item: it brings its survival, and costs a row to verify and a
//! share of a pass of the draft model. Survival falls along a draft, so taking items in the order of
//! survival always takes whole beginnings of drafts, and for a given number of rows there is no better
//! choice. What remains is how many: for every bound on the depth (a pass of the draft model is paid once
//! for all sequences that need it) the items are taken one by one and
//! `goodput = (sequences + sum of survivals) / (verify + passes)` is noted; the best of all is taken.
//!
//! # Example
//! Two sequences, one easy to guess and one not; rows cost 5 % of a step, passes of the draft model 10 %.
//! ```
//! use forespeak_speculation::law::{Arm, StepCosts, allocate};
//!
//! let arm = |chance: f64| Arm::geometric(chance, 8);
//! let costs = StepCosts::linear(2, 1.0, 0.05, 0.1);
//! let best = allocate(&[arm(0.9), arm(0.1)], &costs);
//! assert!(best.depths[0] >= 4);
//! assert_eq!(best.depths[1], 0);
//! ```

use super::{Decision, Evidence, Reason};
use crate::acceptance::{MAX_DEPTH, Survival};
use crate::confidence::Worth;
use crate::cost::StepShape;
use crate::source::Source;
use crate::step::{Candidate, Step};

/// What one sequence could draft.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arm {
    /// Chance that each position is drafted and accepted.
    pub survival: Survival,
    /// Chance that a draft that is planned long enough goes on to the next position; 1 for drafters that never
    /// stop of themselves.
    pub goes_on: f64,
    /// Most tokens.
    pub limit: usize,
    /// Whether drafting takes passes of the draft model.
    pub runs_a_model: bool,
}

impl Arm {
    /// From what was measured.
    pub(super) fn new(evidence: &Evidence, id: u64, source: Source, limit: usize) -> Self {
        Self {
            survival: evidence.acceptance.survival(id, source),
            goes_on: evidence.acceptance.goes_on(source),
            limit: limit.min(MAX_DEPTH),
            runs_a_model: source.runs_a_model(),
        }
    }

    /// An arm of the draft model whose every position is accepted with the same chance.
    pub fn geometric(chance: f64, limit: usize) -> Self {
        let mut survival = [0.0; MAX_DEPTH];
        let mut product = 1.0;
        for place in &mut survival {
            product *= chance;
            *place = product;
        }
        Self {
            survival,
            goes_on: 1.0,
            limit: limit.min(MAX_DEPTH),
            runs_a_model: true,
        }
    }

    /// Rows that a draft of `depth` is expected to have.
    fn rows(&self, depth: usize) -> f64 {
        let mut reach = 1.0;
        (0..depth)
            .map(|_| {
                reach *= self.goes_on;
                reach
            })
            .sum()
    }

    /// Expected tokens of a step with a draft of `depth`.
    pub(super) fn tokens(&self, depth: usize) -> f64 {
        1.0 + self.survival.iter().take(depth).sum::<f64>()
    }
}

/// Costs of the step that is being planned, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct StepCosts {
    /// Target, by drafted tokens.
    verify: Vec<f64>,
    /// One pass of the draft model, by sequences in it.
    pass: Vec<f64>,
}

impl StepCosts {
    /// From what was measured.
    pub(super) fn new(step: &Step<'_>, evidence: &Evidence, arms: &[Arm]) -> Self {
        let sequences = step.candidates.len();
        let context = step.candidates.iter().map(|c| c.context).sum();
        let most: usize = arms.iter().map(|arm| arm.limit).sum();
        let shape = StepShape {
            sequences,
            drafted: 0,
            context,
            prefill_rows: step.prefill_rows,
        };
        let by_model = arms.iter().filter(|arm| arm.runs_a_model).count();
        let share = context / sequences.max(1);
        Self {
            verify: evidence
                .costs
                .verify_curve(&shape, most.min(step.row_budget)),
            pass: (0..=by_model)
                .map(|n| evidence.costs.draft_pass(n, n * share))
                .collect(),
        }
    }

    /// `base` seconds for a step, `row` of that for each drafted token, `pass` of that for each pass.
    pub fn linear(sequences: usize, base: f64, row: f64, pass: f64) -> Self {
        Self {
            verify: (0..=sequences * MAX_DEPTH)
                .map(|drafted| base * (1.0 + row * drafted as f64))
                .collect(),
            pass: (0..=sequences)
                .map(|n| if n == 0 { 0.0 } else { base * pass })
                .collect(),
        }
    }

    /// Rows that drafts may add.
    pub(super) fn most(&self) -> usize {
        self.verify.len().saturating_sub(1)
    }

    pub(super) fn verify(&self, drafted: usize) -> f64 {
        let last = self.verify.last().copied().unwrap_or(0.0);
        self.verify.get(drafted).copied().unwrap_or(last)
    }

    /// The same for an expected number.
    fn verify_about(&self, drafted: f64) -> f64 {
        let (below, part) = (drafted.floor(), drafted.fract());
        let below = below as usize;
        let first = self.verify(below);
        if part > 0.0 {
            first + part * (self.verify(below + 1) - first)
        } else {
            first
        }
    }

    pub(super) fn pass(&self, sequences: usize) -> f64 {
        let last = self.pass.last().copied().unwrap_or(0.0);
        self.pass.get(sequences).copied().unwrap_or(last)
    }

    /// What a token must bring, once it is its turn, where the plan has these depths.
    pub(super) fn worth(&self, arms: &[Arm], depths: &[usize]) -> Worth {
        let rows: usize = depths.iter().sum();
        let planned = rows.clamp(1, self.most().max(1));
        let drafting = self.pass.len().saturating_sub(1).max(1);
        let alone = self.pass(1);
        let more = (self.pass(drafting) - alone) / (drafting - 1).max(1) as f64;
        Worth {
            price: self.goodput(arms, depths),
            row: (self.verify(planned) - self.verify(0)) / planned as f64,
            pass: (alone - more).max(0.0),
            more,
        }
    }

    /// Seconds of a step with these depths.
    pub(super) fn seconds(&self, arms: &[Arm], depths: &[usize]) -> f64 {
        let mut in_pass = [0usize; MAX_DEPTH];
        let (mut rows, mut goes_on) = (0.0, 0.0f64);
        for (arm, &depth) in arms.iter().zip(depths) {
            rows += arm.rows(depth);
            if !arm.runs_a_model {
                continue;
            }
            goes_on = goes_on.max(arm.goes_on);
            for count in in_pass.iter_mut().take(depth) {
                *count += 1;
            }
        }
        // The first pass always runs; each further one if any draft goes on.
        let mut runs = 1.0;
        let mut passes = 0.0;
        for &sequences in in_pass.iter().filter(|&&n| n > 0) {
            passes += runs * self.pass(sequences);
            runs *= goes_on;
        }
        self.verify_about(rows) + passes
    }

    /// Expected tokens per second with these depths.
    pub(super) fn goodput(&self, arms: &[Arm], depths: &[usize]) -> f64 {
        tokens(arms, depths) / self.seconds(arms, depths).max(f64::MIN_POSITIVE)
    }

    /// The same, over that without drafts.
    pub(super) fn speedup(&self, arms: &[Arm], depths: &[usize]) -> f64 {
        if arms.is_empty() {
            return 1.0;
        }
        let plain = arms.len() as f64 / self.verify(0).max(f64::MIN_POSITIVE);
        self.goodput(arms, depths) / plain
    }
}

pub(super) fn tokens(arms: &[Arm], depths: &[usize]) -> f64 {
    arms.iter()
        .zip(depths)
        .map(|(arm, &depth)| arm.tokens(depth))
        .sum()
}

/// Depths and what they promise.
#[derive(Debug, Clone, PartialEq)]
pub struct Allocation {
    /// One for each arm.
    pub depths: Vec<usize>,
    /// Expected tokens per second.
    pub goodput: f64,
}

#[derive(Debug, Clone, Copy)]
struct Item {
    arm: usize,
    /// Depth of the draft that ends with this token.
    depth: usize,
    survival: f64,
    /// Chance that it is drafted at all.
    row: f64,
    /// Chance that its pass runs.
    pass: f64,
    runs_a_model: bool,
}

/// The depths of the highest expected goodput.
pub fn allocate(arms: &[Arm], costs: &StepCosts) -> Allocation {
    let mut items: Vec<Item> = Vec::new();
    for (index, arm) in arms.iter().enumerate() {
        let mut reached = 1.0;
        for (position, &survival) in arm.survival.iter().take(arm.limit).enumerate() {
            if survival <= 0.0 {
                break;
            }
            let pass = reached;
            reached *= arm.goes_on;
            items.push(Item {
                arm: index,
                depth: position + 1,
                survival,
                row: reached,
                pass,
                runs_a_model: arm.runs_a_model,
            });
        }
    }
    items.sort_by(|a, b| {
        b.survival
            .total_cmp(&a.survival)
            .then(a.depth.cmp(&b.depth))
    });
    let plain = arms.len() as f64 / costs.verify(0).max(f64::MIN_POSITIVE);
    let (mut best, mut best_goodput) = ((0, 0), plain);
    let deepest = items.iter().map(|item| item.depth).max().unwrap_or(0);
    // Without a draft model a bound on the depth saves nothing, and one walk over the items is enough.
    let models = items.iter().any(|item| item.runs_a_model);
    let first_bound = if models { 0 } else { deepest };
    for bound in first_bound..=deepest {
        let mut in_pass = [0usize; MAX_DEPTH + 1];
        let (mut tokens, mut passes, mut rows, mut drafted) = (arms.len() as f64, 0.0, 0, 0.0);
        for item in items.iter().filter(|item| within(item, bound)) {
            if rows == costs.most() {
                break;
            }
            rows += 1;
            drafted += item.row;
            tokens += item.survival;
            if let Some(count) = in_pass.get_mut(item.depth).filter(|_| item.runs_a_model) {
                passes += item.pass * (costs.pass(*count + 1) - costs.pass(*count));
                *count += 1;
            }
            let goodput = tokens / (costs.verify_about(drafted) + passes).max(f64::MIN_POSITIVE);
            if goodput > best_goodput {
                (best, best_goodput) = ((bound, rows), goodput);
            }
        }
    }
    let mut depths = vec![0; arms.len()];
    let (bound, rows) = best;
    for item in items.iter().filter(|item| within(item, bound)).take(rows) {
        if let Some(depth) = depths.get_mut(item.arm) {
            *depth = item.depth.max(*depth);
        }
    }
    Allocation {
        depths,
        goodput: best_goodput,
    }
}

/// The bound is on passes of the draft model: lookups have none.
fn within(item: &Item, bound: usize) -> bool {
    !item.runs_a_model || item.depth <= bound
}

/// Who should draft for a sequence: whoever's best draft is worth most at `price`, the tokens per second that
/// time is worth elsewhere. `None` when nobody can.
///
/// A draft's worth is `sum of survivals - price * (time for its rows + its share of passes)`. A lookup costs
/// no passes, so it wins unless the model is better by what its passes cost: n-gram where it hits, the model
/// where not, and where both would do, by what was measured of each for this sequence.
pub fn choose_source(
    candidate: &Candidate,
    evidence: &Evidence,
    shape: &StepShape,
    price: f64,
) -> Option<(Source, usize)> {
    let looked_up = candidate
        .lookup
        .map(|found| (Source::Ngram(found.strength), found.length));
    let by_model = candidate.model.then_some((Source::Model, MAX_DEPTH));
    let bounded = |(source, limit): (Source, usize)| {
        let limit = limit.min(candidate.max_depth).min(MAX_DEPTH);
        (limit > 0).then_some((source, limit))
    };
    match (looked_up.and_then(bounded), by_model.and_then(bounded)) {
        (Some(lookup), Some(model)) => {
            let worth =
                |(source, limit)| best_worth(candidate.id, source, limit, evidence, shape, price);
            Some(if worth(model) > worth(lookup) {
                model
            } else {
                lookup
            })
        }
        (lookup, model) => lookup.or(model),
    }
}

fn best_worth(
    id: u64,
    source: Source,
    limit: usize,
    evidence: &Evidence,
    shape: &StepShape,
    price: f64,
) -> f64 {
    let sequences = shape.sequences.max(1);
    let pass = if source.runs_a_model() {
        evidence.costs.draft_pass(sequences, shape.context) / sequences as f64
    } else {
        0.0
    };
    let curve = evidence.costs.verify_curve(shape, limit);
    let plain = curve.first().copied().unwrap_or(0.0);
    let survival = evidence.acceptance.survival(id, source);
    let goes_on = evidence.acceptance.goes_on(source);
    let (mut gained, mut best) = (0.0, 0.0f64);
    let (mut seconds, mut before, mut reached) = (0.0, plain, 1.0);
    for (survival, verify) in survival.iter().zip(curve.iter().skip(1)) {
        gained += survival;
        seconds += pass * reached;
        reached *= goes_on;
        seconds += reached * (verify - before);
        before = *verify;
        best = best.max(gained - price * seconds);
    }
    best
}

impl Decision {
    pub(super) fn of(depths: &[usize], speedup: f64, reason: Reason) -> Self {
        Self {
            depth: mean(depths),
            deepest: depths.iter().copied().max().unwrap_or(0),
            speedup,
            reason,
        }
    }
}

pub(super) fn mean(depths: &[usize]) -> f64 {
    depths.iter().sum::<usize>() as f64 / depths.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::source::Strength;
    use crate::step::Lookup;

    /// The best of all combinations of depths.
    fn by_force(arms: &[Arm], costs: &StepCosts) -> f64 {
        fn walk(arms: &[Arm], costs: &StepCosts, depths: &mut Vec<usize>) -> f64 {
            if depths.len() == arms.len() {
                return costs.goodput(arms, depths);
            }
            (0..=arms[depths.len()].limit)
                .map(|depth| {
                    depths.push(depth);
                    let goodput = walk(arms, costs, depths);
                    depths.pop();
                    goodput
                })
                .fold(0.0, f64::max)
        }
        walk(arms, costs, &mut Vec::new())
    }

    proptest! {
        #[test]
        fn it_finds_what_trying_everything_finds(
            chances in prop::collection::vec((0.02f64..0.98, 0usize..5, any::<bool>()), 1..4),
            row in 0.0f64..0.4,
            pass in 0.0f64..0.5,
        ) {
            let arms: Vec<Arm> = chances.iter()
                .map(|&(chance, limit, model)| Arm { runs_a_model: model, ..Arm::geometric(chance, limit) })
                .collect();
            let costs = StepCosts::linear(arms.len(), 0.02, row, pass);
            let found = allocate(&arms, &costs);
            prop_assert!((costs.goodput(&arms, &found.depths) - found.goodput).abs() < 1e-6);
            let best = by_force(&arms, &costs);
            prop_assert!(found.goodput <= best * (1.0 + 1e-9));
            prop_assert!(found.goodput >= best * 0.98, "{} of {}", found.goodput, best);
        }

        #[test]
        fn the_row_budget_is_kept(chance in 0.5f64..0.99, budget in 0usize..20) {
            let arms = [Arm::geometric(chance, 8); 4];
            let mut costs = StepCosts::linear(4, 0.02, 0.001, 0.01);
            costs.verify.truncate(budget + 1);
            prop_assert!(allocate(&arms, &costs).depths.iter().sum::<usize>() <= budget);
        }
    }

    #[test]
    fn one_acceptance_and_two_costs_give_two_answers() {
        let arms = [Arm::geometric(0.88, 8); 8];
        let light = allocate(&arms, &StepCosts::linear(8, 0.02, 0.005, 0.1));
        let heavy = allocate(&arms, &StepCosts::linear(8, 0.02, 0.15, 0.1));
        assert!(light.depths.iter().all(|&depth| depth >= 4));
        assert!(heavy.depths.iter().all(|&depth| depth == 0));
    }

    #[test]
    fn auto_takes_lookups_that_hit_and_the_model_where_they_do_not() {
        let mut evidence = Evidence::default();
        let found = |strength| {
            Some(Lookup {
                length: 8,
                strength,
            })
        };
        let candidate = |id, strength| Candidate {
            id,
            context: 100,
            max_depth: 8,
            model: true,
            lookup: found(strength),
        };
        for _ in 0..60 {
            evidence
                .acceptance
                .observe(Duration::ZERO, 1, Source::Model, 4, 3);
            evidence
                .acceptance
                .observe(Duration::ZERO, 1, Source::Ngram(Strength::Strong), 6, 5);
            evidence
                .acceptance
                .observe(Duration::ZERO, 1, Source::Ngram(Strength::Weak), 4, 0);
        }
        let shape = StepShape {
            sequences: 1,
            context: 100,
            ..StepShape::default()
        };
        let choose = |candidate: &Candidate| {
            choose_source(candidate, &evidence, &shape, 1.0).map(|(source, _)| source)
        };
        let strong = candidate(1, Strength::Strong);
        assert_eq!(choose(&strong), Some(Source::Ngram(Strength::Strong)));
        assert_eq!(choose(&candidate(1, Strength::Weak)), Some(Source::Model));
        assert_eq!(
            choose(&Candidate {
                lookup: None,
                ..strong
            }),
            Some(Source::Model)
        );
        assert_eq!(
            choose(&Candidate {
                max_depth: 0,
                ..strong
            }),
            None
        );
        let alone = Candidate {
            model: false,
            ..candidate(1, Strength::Weak)
        };
        assert_eq!(choose(&alone), Some(Source::Ngram(Strength::Weak)));
    }
}
