//! Steps without drafts among those with.
//!
//! What drafts bring is held against what a step takes without them, and that must be as fresh as what is held against it: a
//! machine that has become faster would else seem to speculate well, and costs of drafts that were learnt in a slow moment
//! would never be set right. So when drafting begins, plain steps come soon, then ever less often; what they cost is a part
//! of one step in a hundred, and no account has to have saved for it.

use std::time::Duration;

/// Steps with drafts in front of the first plain one, and in front of each later one at most.
const FIRST_AFTER: u64 = 8;
const MOST_APART: u64 = 100;

/// Steps in which nothing would be drafted anyway before all begins anew: fewer lie between two answers.
const ANEW_AFTER: u64 = 8;

/// Where steps are short they need not come more often than this either.
const APART: Duration = Duration::from_millis(250);

#[derive(Debug, Clone)]
pub(super) struct PlainSteps {
    /// Steps with drafts since the last one without.
    since: u64,
    /// How many there are to be before the next.
    apart: u64,
    /// Steps in a row in which the law would have drafted nothing.
    idle: u64,
}

impl Default for PlainSteps {
    fn default() -> Self {
        Self {
            since: 0,
            apart: FIRST_AFTER,
            idle: 0,
        }
    }
}

impl PlainSteps {
    /// Whether it is time for one, where the last is so old.
    pub(super) fn are_due(&self, age: Duration) -> bool {
        self.since >= self.apart && (self.apart < MOST_APART || age >= APART)
    }

    /// A step is about to run, with or without drafts as the law would have it, and as it is tried.
    pub(super) fn planned(&mut self, plain: bool, tried_plain: bool) {
        self.idle = if plain { self.idle + 1 } else { 0 };
        if self.idle >= ANEW_AFTER {
            *self = Self::default();
        } else if plain {
            // It is as good as one among drafts.
            self.since = 0;
        } else if tried_plain {
            self.since = 0;
            self.apart = (self.apart * 3 / 2).min(MOST_APART);
        } else {
            self.since += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps with drafts between the plain ones of the first `steps`, of `millis` each.
    fn between(plain: &mut PlainSteps, steps: u64, millis: u64) -> Vec<u64> {
        let (mut runs, mut run) = (Vec::new(), 0);
        for _ in 0..steps {
            let due = plain.are_due(Duration::from_millis(run * millis));
            plain.planned(false, due);
            if due {
                runs.push(std::mem::take(&mut run));
            } else {
                run += 1;
            }
        }
        runs
    }

    #[test]
    fn they_come_soon_and_then_less_often() {
        let mut plain = PlainSteps::default();
        assert_eq!(between(&mut plain, 300, 10), [8, 12, 18, 27, 40, 60, 90]);
        // An answer ended: nothing else has changed.
        plain.planned(true, true);
        assert_eq!(between(&mut plain, 102, 10), [100]);
        // Nothing was worth a draft for long: what comes next begins anew.
        (0..ANEW_AFTER).for_each(|_| plain.planned(true, true));
        assert_eq!(between(&mut plain, 10, 10), [8]);
    }

    #[test]
    fn short_steps_are_counted_by_the_clock() {
        let runs = between(&mut PlainSteps::default(), 1_000, 1);
        assert_eq!(runs, [8, 12, 18, 27, 40, 60, 90, 250, 250]);
    }
}
