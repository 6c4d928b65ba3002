//! Steps about which nobody need be asked.
//!
//! Where nothing is drafted, next to nothing is learnt, and the same plan would be made over and over. Around it there is more to
//! do than the plan itself, from looking up what might follow to learning what a step took: two to three microseconds for each
//! sequence, most of them spent on fetching again what the weights have driven out of the caches. So where nothing has been
//! drafted for some steps, steps go without a plan for a while.

use std::time::Duration;

use super::step_costs::StepCosts;
use crate::cost::SOON;

/// How long nobody asks where plans are cheap: longer steps are planned each.
const PAUSE: Duration = Duration::from_millis(16);

/// How long nobody asks at most: a small part of the time in which a change must be noticed.
const LONGEST_PAUSE: Duration = Duration::from_millis(48);

/// The part of the time that plans may take where nothing comes of them: those of many sequences are dear, and have longer pauses
/// between them.
const PART_OF_PLANS: f64 = 0.002;

/// How soon pauses begin, and how long they are where the draft model would be asked for drafts if it had less to read for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Patience {
    /// Steps without drafts before the first pause. While drafts leave something behind for the steps that follow, each of those is
    /// of interest, and a few that nothing is left behind for.
    steps: u32,
    short_pause: Duration,
}

/// One sequence has hard stretches, behind which its drafts pay again at once.
const OF_ONE: Patience = Patience {
    steps: SOON as u32 + 7,
    short_pause: Duration::from_millis(4),
};

/// Those of many even out, and there is more to do around each plan: 80 microseconds for sixteen of them, a fortieth of a step.
const OF_MANY: Patience = Patience {
    steps: SOON as u32 + 3,
    short_pause: Duration::from_millis(12),
};

/// Sequences from which on they are many.
const MANY: usize = 4;

impl Patience {
    fn of(sequences: usize) -> Self {
        if sequences < MANY { OF_ONE } else { OF_MANY }
    }
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    since: Duration,
    pause: Duration,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Quiet {
    /// Steps that were planned since something was drafted.
    steps: u32,
    /// The last pause, if it was behind the last plan and drafts were wanted.
    waits: Option<Wait>,
}

impl Quiet {
    /// Steps that a plan stands for which is made now: in those of a short pause, each of `step` seconds, drafts were wanted too.
    /// A pause ends with the step in which it is over. If that was a long one, because others' prompts were read in it, it is
    /// one step nevertheless.
    pub(super) fn stands_for(&self, now: Duration, step: f64) -> u32 {
        let step = step.max(f64::MIN_POSITIVE);
        let steps = self.waits.map_or(0.0, |wait| {
            let paused = now.saturating_sub(wait.since).as_secs_f64();
            (paused / step).min(wait.pause.as_secs_f64() / step + 1.0)
        });
        (steps as u32).max(1)
    }

    /// Seconds that are spent on the plans of steps which would go without them but for a draft.
    pub(super) fn price_of_a_draft(costs: &StepCosts) -> f64 {
        let patience = Patience::of(costs.sequences);
        f64::from(patience.steps) * costs.planning
    }

    /// Takes note of a step in which something is drafted, or not; and whether it would be if there were less to read for it. Gives
    /// how long nobody need ask now.
    pub(super) fn planned(
        &mut self,
        now: Duration,
        costs: &StepCosts,
        drafts: bool,
        wanted: bool,
    ) -> Duration {
        self.steps = if drafts {
            0
        } else {
            self.steps.saturating_add(1)
        };
        let patience = Patience::of(costs.sequences);
        let pauses = self.steps > patience.steps;
        self.waits = (pauses && wanted).then_some(Wait {
            since: now,
            pause: patience.short_pause,
        });
        match (pauses, wanted) {
            (false, _) => Duration::ZERO,
            (true, true) => patience.short_pause,
            (true, false) => pause_between_plans(costs.planning),
        }
    }
}

fn pause_between_plans(planning: f64) -> Duration {
    let longest = LONGEST_PAUSE.as_secs_f64();
    Duration::from_secs_f64((planning / PART_OF_PLANS).min(longest)).max(PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(sequences: usize) -> StepCosts {
        StepCosts::linear(sequences, 0.004, 0.1, 0.1)
    }

    #[test]
    fn pauses_begin_some_steps_behind_drafts_and_are_short_where_some_are_wanted() {
        let now = Duration::from_secs(1);
        for (sequences, patience) in [(1, OF_ONE), (16, OF_MANY)] {
            let mut quiet = Quiet::default();
            let costs = costs(sequences);
            let mut planned = |drafts, wanted| quiet.planned(now, &costs, drafts, wanted);
            for wanted in [false, true] {
                assert_eq!(planned(true, wanted), Duration::ZERO);
                let at_once = (0..100).take_while(|_| planned(false, wanted).is_zero());
                assert_eq!(at_once.count(), patience.steps as usize);
            }
            assert!(planned(false, true) < planned(false, false));
        }
    }

    #[test]
    fn a_plan_behind_a_short_pause_stands_for_all_its_steps() {
        let mut quiet = Quiet::default();
        let now = Duration::from_secs(1);
        let later = now + OF_ONE.short_pause;
        let costs = costs(1);
        quiet.planned(now, &costs, true, true);
        assert_eq!(quiet.stands_for(later, 0.001), 1, "there was no pause");
        while quiet.planned(now, &costs, false, true).is_zero() {}
        assert_eq!(quiet.stands_for(later, 0.001), 4);
        assert_eq!(quiet.stands_for(later, 0.1), 1);
        let long_step = later + Duration::from_secs(3);
        assert_eq!(quiet.stands_for(long_step, 0.001), 5);
        assert_eq!(quiet.stands_for(long_step, 0.1), 1);
        quiet.planned(now, &costs, false, false);
        assert_eq!(quiet.stands_for(later, 0.001), 1, "nothing was wanted");
    }

    #[test]
    fn pauses_grow_with_what_plans_cost_up_to_a_bound() {
        assert_eq!(pause_between_plans(0.0), PAUSE);
        assert_eq!(pause_between_plans(0.000_026), PAUSE);
        assert_eq!(pause_between_plans(0.000_08), Duration::from_millis(40));
        assert_eq!(pause_between_plans(f64::INFINITY), LONGEST_PAUSE);
    }
}
