//! Steps about which nobody need be asked.
//!
//! Where nothing is drafted, next to nothing is learnt, and the same plan would be made over and over. Around it there is more to
//! do than the plan itself, from looking up what might follow to learning what a step took: two to three microseconds for each
//! sequence, most of them spent on fetching again what the weights have driven out of the caches. So where nothing has been
//! drafted for some steps, steps go without a plan for a while.

use std::time::Duration;

/// How long nobody asks: a small part of the time in which a change must be noticed. Longer steps are planned each: it costs
/// them nothing.
const PAUSE: Duration = Duration::from_millis(8);

/// Steps without drafts before the first pause. While drafts leave something behind for the steps that follow, each of those is
/// of interest.
const BEFORE_A_PAUSE: u32 = 8;

#[derive(Debug, Clone, Default)]
pub(super) struct Quiet {
    /// Steps that were planned since something was drafted.
    steps: u32,
}

impl Quiet {
    /// Takes note of a step in which nothing is drafted, nor would be however little there were to read, or of another one. Gives
    /// how long nobody need ask now.
    pub(super) fn planned(&mut self, nothing: bool) -> Duration {
        self.steps = if nothing {
            self.steps.saturating_add(1)
        } else {
            0
        };
        if self.steps > BEFORE_A_PAUSE {
            PAUSE
        } else {
            Duration::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_begin_some_steps_behind_drafts() {
        let mut quiet = Quiet::default();
        for _ in 0..3 {
            assert_eq!(quiet.planned(false), Duration::ZERO);
            let at_once = (0..100).take_while(|_| quiet.planned(true).is_zero());
            assert_eq!(at_once.count(), BEFORE_A_PAUSE as usize);
        }
    }
}
