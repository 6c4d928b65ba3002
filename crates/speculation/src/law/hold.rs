//! Keeping depths until a change is clearly worth it.
//!
//! Estimates tremble, and a depth that follows every tremor pays for it twice: each change makes the next
//! estimates worse. So a depth, once taken, stays for a while, and leaves only for one that is better by a
//! margin. The margin is asked of every sequence that wants to change, against its own share of the tokens,
//! and of all of them together: a batch changes a shared cost only together. Who is new starts from no draft, and
//! needs the margin too: when in doubt, nothing is drafted.
//!
//! Depths that together are expected to be slower than no speculation at all are left at once, without rest and
//! margin, for the best there are: each of them alone may lose too little to move, and all of them a tenth.
//!
//! All this is for the draft model. A lookup is another one in every step, with another match behind it, so there is no
//! depth of it to keep; what one of its kind is worth is known from many sequences, and it takes nothing to begin. Of many
//! they must promise a little, though: the best of many guesses is partly the luckiest.

use std::time::Duration;

use foldhash::HashMap;

use super::allocate::Allocation;
use super::arm::{Arm, tokens};
use super::step_costs::StepCosts;
use crate::source::Source;

/// Least relative gain for which a depth changes, and as a part of how uneven steps are: where they are very uneven, costs are
/// known badly, and a gain must be larger to be one.
const MARGIN: f64 = 0.05;
const MARGIN_OF_UNEVENNESS: f64 = 0.5;

fn margin(costs: &StepCosts) -> f64 {
    MARGIN.max(MARGIN_OF_UNEVENNESS * costs.unevenness)
}

/// What lookups must promise over no drafts, from so many sequences on. With less, sixteen lost up to 4 % where rows are dear;
/// with four it makes no difference.
const LEAST_PROMISE: f64 = 0.01;
const PROMISE_FROM: usize = 8;

/// Least time between two changes of a sequence's depth...
const DWELL: Duration = Duration::from_millis(250);

/// ...or, where steps are so short that an answer is over by then, least steps.
const DWELL_STEPS: u64 = 16;

/// Sequences remembered; beyond it all are forgotten and simply take the best depth anew.
const MAX_SEQUENCES: usize = 4_096;

#[derive(Debug, Clone, Copy)]
struct Held {
    depth: usize,
    since: Duration,
    since_step: u64,
}

impl Held {
    fn is_rested(&self, now: Duration, step: u64) -> bool {
        now.saturating_sub(self.since) >= DWELL
            || step.saturating_sub(self.since_step) >= DWELL_STEPS
    }
}

/// Depths of the draft model in force, by sequence.
#[derive(Debug, Clone, Default)]
pub(super) struct Hold {
    held: HashMap<u64, Held>,
    step: u64,
}

impl Hold {
    /// The depths to use: those of `best` where it is time and worth it, else those held.
    pub(super) fn settle(
        &mut self,
        now: Duration,
        who: &[(u64, Source)],
        arms: &[Arm],
        costs: &StepCosts,
        best: &Allocation,
    ) -> Vec<usize> {
        self.step += 1;
        let mut kept = best.depths.clone();
        let mut movers = Vec::new();
        let by_model = who.iter().zip(arms).enumerate();
        for (index, (&(id, _), arm)) in by_model.filter(|(_, (_, arm))| arm.runs_a_model) {
            let held = self.held.get(&id);
            let depth = held.map_or(0, |held| held.depth).min(arm.limit);
            let Some(place) = kept.get_mut(index) else {
                continue;
            };
            let wanted = std::mem::replace(place, depth);
            let rested = held.is_none_or(|held| held.is_rested(now, self.step));
            if wanted != depth && rested && stays_behind(index, depth, arms, costs, best) {
                movers.push((index, wanted));
            }
        }
        trim(&mut kept, costs.most());
        let mut depths = if costs.speedup(arms, &kept) < 1.0 {
            best.depths.clone()
        } else {
            let moved = self.moved_if_worth_it(&kept, &movers, arms, costs);
            moved.unwrap_or(kept)
        };
        let mut drafts = arms.iter().zip(&depths).filter(|(_, depth)| **depth > 0);
        let all_looked_up = arms.len() >= PROMISE_FROM && drafts.all(|(arm, _)| !arm.runs_a_model);
        if all_looked_up && costs.speedup(arms, &depths) < 1.0 + LEAST_PROMISE {
            depths.fill(0);
        }
        for ((&(id, _), arm), &depth) in who.iter().zip(arms).zip(&depths) {
            if arm.runs_a_model {
                self.keep(now, id, arm, depth);
            }
        }
        depths
    }

    pub(super) fn forget(&mut self, id: u64) {
        self.held.remove(&id);
    }

    fn moved_if_worth_it(
        &self,
        kept: &[usize],
        movers: &[(usize, usize)],
        arms: &[Arm],
        costs: &StepCosts,
    ) -> Option<Vec<usize>> {
        let mut depths = kept.to_vec();
        let (mut theirs, mut all) = (0.0, 0.0);
        for (arm, &depth) in arms.iter().zip(kept) {
            all += arm.tokens(depth);
        }
        for &(index, wanted) in movers {
            if let (Some(depth), Some(arm)) = (depths.get_mut(index), arms.get(index)) {
                theirs += arm.tokens(*depth);
                *depth = wanted;
            }
        }
        trim(&mut depths, costs.most());
        let before = costs.goodput(arms, kept);
        let gain = costs.goodput(arms, &depths) / before - 1.0;
        (theirs > 0.0 && gain * all / theirs > margin(costs)).then_some(depths)
    }

    fn keep(&mut self, now: Duration, id: u64, arm: &Arm, depth: usize) {
        let held = self.held.get(&id);
        // A draft that is cut short by its own length does not change what is held.
        let cut = held.is_some_and(|held| held.depth > depth && depth == arm.limit);
        if cut || held.is_some_and(|held| held.depth == depth) {
            return;
        }
        if self.held.len() >= MAX_SEQUENCES && held.is_none() {
            self.held.clear();
        }
        let held = Held {
            depth,
            since: now,
            since_step: self.step,
        };
        self.held.insert(id, held);
    }
}

/// Whether the best plan loses more than the margin of a sequence's share if that one stays as it is.
fn stays_behind(
    index: usize,
    depth: usize,
    arms: &[Arm],
    costs: &StepCosts,
    best: &Allocation,
) -> bool {
    let mut depths = best.depths.clone();
    let (Some(place), Some(arm)) = (depths.get_mut(index), arms.get(index)) else {
        return false;
    };
    *place = depth;
    let loss = best.goodput / costs.goodput(arms, &depths) - 1.0;
    let all = tokens(arms, &depths);
    loss * all / arm.tokens(depth) >= margin(costs)
}

/// Cuts the deepest drafts until they fit the budget of rows.
fn trim(depths: &mut [usize], most: usize) {
    let mut rows: usize = depths.iter().sum();
    while rows > most {
        let Some(deepest) = depths.iter_mut().max() else {
            return;
        };
        *deepest -= 1;
        rows -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::allocate::allocate;
    use crate::source::Strength;

    #[test]
    fn what_loses_against_no_speculation_is_left_by_all_at_once() {
        let who: Vec<(u64, Source)> = (0..8).map(|id| (id, Source::Model)).collect();
        let arms = |chance| vec![Arm::geometric(chance, 8); who.len()];
        let cheap = StepCosts::linear(who.len(), 1.0, 0.01, 0.05);
        let dear = StepCosts::linear(who.len(), 1.0, 0.12, 0.05);
        let mut hold = Hold::default();
        let easy = arms(0.8);
        let taken = hold.settle(
            Duration::ZERO,
            &who,
            &easy,
            &cheap,
            &allocate(&easy, &cheap),
        );
        assert!(taken.iter().all(|&depth| depth > 1), "{taken:?}");
        // The very next step: nobody has rested.
        let hard = arms(0.5);
        let left = hold.settle(Duration::ZERO, &who, &hard, &dear, &allocate(&hard, &dear));
        assert!(dear.speedup(&hard, &taken) < 1.0);
        assert!(dear.speedup(&hard, &left) >= 1.0, "{left:?}");
    }

    #[test]
    fn a_lookup_is_drafted_as_deep_as_it_is_worth_now() {
        let who = [(1, Source::Ngram(Strength::Fair))];
        let costs = StepCosts::linear(1, 1.0, 0.05, 0.0);
        let mut hold = Hold::default();
        for chance in [0.9, 0.3, 0.6] {
            let arm = Arm {
                runs_a_model: false,
                ..Arm::geometric(chance, 8)
            };
            let best = allocate(&[arm], &costs);
            let taken = hold.settle(Duration::ZERO, &who, &[arm], &costs, &best);
            assert_eq!(taken, best.depths);
        }
    }

    #[test]
    fn lookups_of_many_that_promise_next_to_nothing_are_left_out() {
        let lookup = |chance| Arm {
            runs_a_model: false,
            ..Arm::geometric(chance, 1)
        };
        let settle = |sequences: usize, chance| {
            let mut arms = vec![lookup(0.0); sequences];
            arms[0] = lookup(chance);
            let costs = StepCosts::linear(sequences, 1.0, 0.1, 0.0);
            let who: Vec<_> = (0..)
                .map(|id| (id, Source::Model))
                .take(arms.len())
                .collect();
            let best = allocate(&arms, &costs);
            Hold::default().settle(Duration::ZERO, &who, &arms, &costs, &best)[0]
        };
        // A row costs a tenth of a step: as much as 0.8 tokens where eight are said in it.
        assert_eq!((settle(8, 0.85), settle(8, 0.95)), (0, 1));
        assert_eq!(settle(2, 0.205), 1, "there is little to choose from");
    }

    #[test]
    fn what_still_gains_is_kept_until_it_has_rested() {
        let who = [(1, Source::Model)];
        let costs = StepCosts::linear(1, 1.0, 0.05, 0.05);
        let (easy, harder) = ([Arm::geometric(0.9, 8)], [Arm::geometric(0.7, 8)]);
        let mut hold = Hold::default();
        let mut settle = |at, arms: &[Arm]| {
            let now = Duration::from_millis(at);
            hold.settle(now, &who, arms, &costs, &allocate(arms, &costs))
        };
        let taken = settle(0, &easy);
        assert_eq!(settle(10, &harder), taken);
        assert_ne!(settle(300, &harder), taken);
    }
}
