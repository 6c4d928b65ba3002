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

use super::arm::Arm;
use super::step_costs::StepCosts;
use crate::acceptance::MAX_DEPTH;

/// A token that comes less often is never worth its row, on no machine.
const LEAST_SURVIVAL: f64 = 0.01;

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
    /// What there is to be paid with it besides.
    begins: f64,
    runs_a_model: bool,
}

/// The depths of the highest expected goodput.
pub fn allocate(arms: &[Arm], costs: &StepCosts) -> Allocation {
    let mut items: Vec<Item> = Vec::new();
    for (index, arm) in arms.iter().enumerate() {
        let mut reached = 1.0;
        for (position, &survival) in arm.survival.iter().take(arm.limit).enumerate() {
            if survival < LEAST_SURVIVAL {
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
                begins: if position == 0 { arm.instalment } else { 0.0 },
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
    // Without a draft model a bound on the depth saves nothing, nor does it where there is nobody to share passes with: one walk over
    // the items is enough.
    let shares_passes = arms.len() > 1 && items.iter().any(|item| item.runs_a_model);
    let first_bound = if shares_passes { 0 } else { deepest };
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
                passes += item.begins;
                *count += 1;
            }
            let seconds = costs.verify_about(drafted) + passes + costs.planning;
            let goodput = tokens / seconds.max(f64::MIN_POSITIVE);
            if goodput > best_goodput {
                (best, best_goodput) = ((bound, rows), goodput);
            }
            // Even if all that is left came for nothing.
            let left = (items.len() - rows) as f64;
            if tokens + left * item.survival < best_goodput * seconds {
                break;
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
            let costs = StepCosts::linear(4, 0.02, 0.001, 0.01).bounded(budget);
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
}
