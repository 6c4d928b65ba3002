//! Steps about which nobody need be asked.
//!
//! Where nothing is drafted, next to nothing is learnt, and the same plan would be made over and over. Around it there is more to
//! do than the plan itself, from looking up what might follow to learning what a step took: two to three microseconds for each
//! sequence, most of them spent on fetching again what the weights have driven out of the caches. So where nothing has been
//! drafted for some steps, steps go without a plan for a while.

use std::time::Duration;

/// How long nobody asks: a small part of the time in which a change must be noticed. Longer steps are planned each: it costs
/// them nothing.
const PAUSE: Duration = Duration::from_millis(16);

/// The same where the draft model would be asked for drafts if it had less to read for them: that may change soon.
const SHORT_PAUSE: Duration = Duration::from_millis(4);

/// Steps without drafts before the first pause. While drafts leave something behind for the steps that follow, each of those is
/// of interest.
const BEFORE_A_PAUSE: u32 = 12;

#[derive(Debug, Clone, Default)]
pub(super) struct Quiet {
    /// Steps that were planned since something was drafted.
    steps: u32,
    /// When the last pause began, if it was behind the last plan and drafts were wanted.
    waits_since: Option<Duration>,
}

impl Quiet {
    /// Steps that a plan stands for which is made now: in those of a short pause, each of `step` seconds, drafts were wanted too.
    pub(super) fn stands_for(&self, now: Duration, step: f64) -> u32 {
        let paused = self
            .waits_since
            .map_or(Duration::ZERO, |began| now.saturating_sub(began));
        ((paused.as_secs_f64() / step.max(f64::MIN_POSITIVE)) as u32).max(1)
    }

    /// Takes note of a step in which something is drafted, or not; and whether it would be if there were less to read for it.
    /// Gives how long nobody need ask now.
    pub(super) fn planned(&mut self, now: Duration, drafts: bool, wanted: bool) -> Duration {
        self.steps = if drafts {
            0
        } else {
            self.steps.saturating_add(1)
        };
        let pause = match (self.steps > BEFORE_A_PAUSE, wanted) {
            (false, _) => Duration::ZERO,
            (true, true) => SHORT_PAUSE,
            (true, false) => PAUSE,
        };
        self.waits_since = (pause == SHORT_PAUSE).then_some(now);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_begin_some_steps_behind_drafts_and_are_short_where_some_are_wanted() {
        let mut quiet = Quiet::default();
        let now = Duration::from_secs(1);
        for wanted in [false, true] {
            assert_eq!(quiet.planned(now, true, wanted), Duration::ZERO);
            let at_once = (0..100).take_while(|_| quiet.planned(now, false, wanted).is_zero());
            assert_eq!(at_once.count(), BEFORE_A_PAUSE as usize);
        }
        assert!(quiet.planned(now, false, true) < quiet.planned(now, false, false));
    }

    #[test]
    fn a_plan_behind_a_short_pause_stands_for_all_its_steps() {
        let mut quiet = Quiet::default();
        let now = Duration::from_secs(1);
        let later = now + SHORT_PAUSE;
        quiet.planned(now, true, true);
        assert_eq!(quiet.stands_for(later, 0.001), 1, "there was no pause");
        while quiet.planned(now, false, true).is_zero() {}
        assert_eq!(quiet.stands_for(later, 0.001), 4);
        assert_eq!(quiet.stands_for(later, 0.1), 1);
        quiet.planned(now, false, false);
        assert_eq!(quiet.stands_for(later, 0.001), 1, "nothing was wanted");
    }
}
