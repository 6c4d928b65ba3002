//! Steps that need no plan.
//!
//! Where nothing is drafted, next to nothing is learnt, and the same plan would be made over and over: of four sequences whose
//! steps take a millisecond it takes a hundredth of that. So after a plan without drafts, steps go without one for a moment, as
//! long as they are of the same sequences and nobody has found more than what was just declined.
//!
//! Where that has lasted for some steps, the law is not even asked for a while. What is around a plan, from looking up what might
//! follow to learning what a step took, is a few microseconds for each sequence, most of them spent on fetching again what the
//! weights have driven out of the caches.

use std::time::Duration;

use super::Reason;
use crate::source::Strength;
use crate::step::Candidate;

/// How long steps behind a plan without drafts are taken to be like it. Longer ones are planned each: it costs them nothing.
const MOMENT: Duration = Duration::from_millis(8);

/// How long nobody asks: less than a hundredth of the time in which a change must be noticed.
const PAUSE: Duration = Duration::from_millis(3);

/// Steps without drafts before the first such pause: while drafts leave something behind for the steps that follow, each is of
/// interest.
const BEFORE_A_PAUSE: u32 = 8;

#[derive(Debug, Clone, Default)]
pub(super) struct Quiet {
    sequences: Vec<u64>,
    /// The best lookup of the plan.
    declined: Option<Strength>,
    /// Why nothing is drafted, while it lasts.
    reason: Option<Reason>,
    until: Duration,
    /// Steps that were asked about since something was drafted.
    steps: u32,
}

impl Quiet {
    /// Why nothing is drafted in a step of these sequences, if it needs no plan.
    pub(super) fn reason(&mut self, now: Duration, candidates: &[Candidate]) -> Option<Reason> {
        let ids = candidates.iter().map(|candidate| candidate.id);
        let covered = now < self.until
            && best_lookup(candidates) <= self.declined
            && self.sequences.iter().copied().eq(ids);
        self.reason = self.reason.filter(|_| covered);
        self.steps += u32::from(self.reason.is_some());
        self.reason
    }

    /// How long nobody need ask now.
    pub(super) fn pause(&self) -> Duration {
        if self.steps > BEFORE_A_PAUSE {
            PAUSE
        } else {
            Duration::ZERO
        }
    }

    /// Something is drafted, or would be if there were less to read.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// Nothing is drafted for these, and nothing would be however little there were to read.
    pub(super) fn begin(&mut self, now: Duration, candidates: &[Candidate], reason: Reason) {
        self.reason = Some(reason);
        self.declined = best_lookup(candidates);
        self.sequences.clear();
        self.sequences
            .extend(candidates.iter().map(|candidate| candidate.id));
        self.until = now + MOMENT;
        self.steps += 1;
    }
}

/// How well the best of what was looked up matched.
fn best_lookup(candidates: &[Candidate]) -> Option<Strength> {
    let strengths = candidates.iter().filter_map(|one| one.lookup);
    strengths.map(|lookup| lookup.strength).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::Lookup;

    const NOW: Duration = Duration::ZERO;

    fn candidates(ids: &[u64]) -> Vec<Candidate> {
        let candidate = |&id| Candidate {
            id,
            context: 10,
            max_depth: 8,
            model: true,
            behind: 5,
            lookup: None,
        };
        ids.iter().map(candidate).collect()
    }

    #[test]
    fn it_lasts_for_a_moment_of_the_same_sequences() {
        let mut quiet = Quiet::default();
        let same = candidates(&[1, 2]);
        assert_eq!(quiet.reason(NOW, &same), None);
        quiet.begin(NOW, &same, Reason::Off);
        let covered = |step: &u64| quiet.reason(Duration::from_millis(*step), &same).is_some();
        assert_eq!((1..20).take_while(covered).count(), 7);
    }

    #[test]
    fn who_comes_and_whoever_finds_something_ends_it() {
        let mut quiet = Quiet::default();
        let same = candidates(&[1, 2]);
        let mut found = same.clone();
        found[1].lookup = Some(Lookup {
            length: 3,
            strength: Strength::Fair,
        });
        for other in [candidates(&[1, 2, 3]), candidates(&[2]), found] {
            quiet.begin(NOW, &same, Reason::Off);
            assert_eq!(quiet.reason(NOW, &same), Some(Reason::Off));
            assert_eq!(quiet.reason(NOW, &other), None);
            assert_eq!(quiet.reason(NOW, &same), None);
        }
    }

    #[test]
    fn pauses_begin_some_steps_behind_drafts() {
        let mut quiet = Quiet::default();
        let same = candidates(&[1]);
        let mut before_a_pause = || {
            quiet.end();
            let asked = |quiet: &mut Quiet| {
                if quiet.reason(NOW, &same).is_none() {
                    quiet.begin(NOW, &same, Reason::Off);
                }
                quiet.pause().is_zero()
            };
            (0..100).take_while(|_| asked(&mut quiet)).count()
        };
        for _ in 0..3 {
            assert_eq!(before_a_pause(), BEFORE_A_PAUSE as usize);
        }
    }

    #[test]
    fn what_was_declined_is_not_asked_about_again() {
        let found = |strength| {
            let mut found = candidates(&[1, 2]);
            found[0].lookup = Some(Lookup {
                length: 3,
                strength,
            });
            found
        };
        let mut quiet = Quiet::default();
        quiet.begin(NOW, &found(Strength::Fair), Reason::Off);
        for weaker in [found(Strength::Weak), candidates(&[1, 2])] {
            assert_eq!(quiet.reason(NOW, &weaker), Some(Reason::Off));
        }
        assert_eq!(quiet.reason(NOW, &found(Strength::Strong)), None);
    }
}
