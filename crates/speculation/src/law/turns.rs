//! Over how many drafts it is paid what the draft model has to read before its first one.
//!
//! Reading a prompt takes as long as several steps, and pays if enough drafts follow. How many do belongs to the texts: in
//! prose an answer has as many as it has steps; where a lookup takes over behind the second token it has two. So they are
//! counted: the steps of a sequence in which the model's draft would be the best, had it nothing to read, whether it is
//! made or not. What is to be read is paid over the mean of the sequences that ended.
//!
//! A sequence that has wanted the model for a while without getting it has so many less to come. But that mean may be of other
//! texts: one that has wanted it for more than half of it is expected to go on for as long again. So it begins at the latest
//! when what it missed was worth what there is to read, and never loses more than that for having waited.

use foldhash::{HashMap, HashMapExt};

/// Before any sequence has ended: about the steps of an answer.
const FIRST: f64 = 80.0;

/// Share of the mean that a sequence replaces when it ends. Texts change with every answer, and one of them says little.
const RATE: f64 = 0.25;

/// Sequences counted; beyond it all are forgotten and counted anew.
const MAX_SEQUENCES: usize = 4_096;

/// Steps in which the draft model was wanted.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    running: HashMap<u64, u32>,
    mean: f64,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            running: HashMap::new(),
            mean: FIRST,
        }
    }
}

impl Turns {
    /// Drafts of the model that are expected for a sequence from now on.
    pub(super) fn expected(&self, sequence: u64) -> f64 {
        let so_far = self.running.get(&sequence).copied().unwrap_or(0);
        let so_far = f64::from(so_far);
        (self.mean - so_far).max(so_far).max(1.0)
    }

    /// A draft of the model would have been the best for this sequence in so many steps.
    pub(super) fn count(&mut self, sequence: u64, steps: u32) {
        if self.running.len() >= MAX_SEQUENCES && !self.running.contains_key(&sequence) {
            self.running.clear();
        }
        let turns = self.running.entry(sequence).or_default();
        *turns = turns.saturating_add(steps);
    }

    /// A sequence ended. One that never wanted the model says nothing about those that do.
    pub(super) fn forget(&mut self, sequence: u64) {
        if let Some(turns) = self.running.remove(&sequence) {
            self.mean += RATE * (f64::from(turns) - self.mean);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(turns: &mut Turns, sequence: u64, wanted: usize) {
        for _ in 0..wanted {
            turns.count(sequence, 1);
        }
        turns.forget(sequence);
    }

    #[test]
    fn texts_that_want_the_model_for_two_steps_are_known_after_a_dozen_answers() {
        let mut turns = Turns::default();
        assert_eq!(turns.expected(0), FIRST);
        for sequence in 0..12 {
            answer(&mut turns, sequence, 2);
        }
        assert!(turns.expected(99) < 5.0, "{}", turns.expected(99));
        for sequence in 20..30 {
            answer(&mut turns, sequence, 70);
        }
        assert!(turns.expected(99) > 60.0, "{}", turns.expected(99));
    }

    #[test]
    fn who_wants_it_for_longer_than_usual_is_expected_to_go_on() {
        let mut turns = Turns::default();
        for sequence in 0..40 {
            answer(&mut turns, sequence, 1);
        }
        for _ in 0..30 {
            turns.count(99, 1);
        }
        assert_eq!(turns.expected(99), 30.0);
    }

    #[test]
    fn who_never_wanted_it_says_nothing_and_memory_is_bounded() {
        let mut turns = Turns::default();
        turns.forget(5);
        assert_eq!(turns.expected(5), FIRST);
        for sequence in 0..2 * MAX_SEQUENCES as u64 {
            turns.count(sequence, 1);
        }
        assert!(turns.running.len() <= MAX_SEQUENCES);
    }
}
