//! How fast the machine is now, against when its costs were learnt.
//!
//! Every sample over what was learnt of its kind of step is a **beat**; the tempo is the median of the latest. It follows only
//! clear changes: if it followed every tremor, costs that are visited at different times would drift apart.
//!
//! While a law drafts, nearly all beats are of steps with drafts. What was learnt of those may be wrong, because the machine
//! changed while they were new, and then it is not the machine that is slow: taken for it, the error would never be
//! corrected. So a change that steps with drafts tell of is in doubt until plain steps, which a law is asked for, tell of it
//! too. Where they do not, what was learnt of drafts is forgotten. The same doubt arises where the plain steps among the
//! others contradict the tempo.

use super::{MEDIAN_OF, RunningMedian, median};

/// Unevenness before it is known, how fast it is learnt, and what counts at most: an outlier is one sample.
const FIRST_SPREAD: f64 = 0.1;
const SPREAD_RATE: f64 = 0.02;
const LARGEST_DISTANCE: f64 = 0.5;

/// A change is clear if it is larger than a factor, and than some times the beats' own spread.
struct Margin {
    factor: f64,
    spreads: f64,
}

/// For the median of all latest beats, and for that of a few plain steps.
const OF_ALL: Margin = Margin {
    factor: 1.06,
    spreads: 1.2,
};
const OF_WITNESSES: Margin = Margin {
    factor: 1.15,
    spreads: 2.5,
};

/// Plain steps that settle a doubt, and with drafts that are waited for them: not every law makes plain ones.
const WITNESSES: usize = 3;
const PATIENCE: usize = 2 * MEDIAN_OF;

/// What to make of the costs after a beat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// They are right.
    Right,
    /// Those of drafts are not.
    DraftsAreWrong,
}

/// The tempo.
#[derive(Debug, Clone)]
pub(super) struct Tempo {
    value: f64,
    /// The latest beats.
    beats: RunningMedian,
    /// The latest of plain steps.
    plain: Vec<f64>,
    /// Mean distance of beats from the tempo, in logarithms: how uneven the machine is.
    spread: f64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Settled,
    /// It changes: so many more of the latest beats are still of the old one.
    Changes(usize),
    /// Plain steps since it came up, and others.
    InDoubt {
        witnesses: usize,
        waited: usize,
    },
}

impl Default for Tempo {
    fn default() -> Self {
        Self {
            value: 1.0,
            beats: RunningMedian::default(),
            plain: Vec::with_capacity(WITNESSES),
            spread: FIRST_SPREAD,
            state: State::Settled,
        }
    }
}

impl Tempo {
    pub(super) fn value(&self) -> f64 {
        self.value
    }

    /// Goes back to a tempo that was left.
    pub(super) fn return_to(&mut self, value: f64) {
        *self = Self {
            value,
            spread: self.spread,
            ..Self::default()
        };
    }

    pub(super) fn spread(&self) -> f64 {
        self.spread
    }

    /// Whether samples can be learnt from: not while it is changing.
    pub(super) fn is_settled(&self) -> bool {
        self.state == State::Settled
    }

    /// Whether plain steps would settle a doubt.
    pub(super) fn wants_plain(&self) -> bool {
        matches!(self.state, State::InDoubt { .. })
    }

    /// A step ran of which too little is known for a beat.
    pub(super) fn miss(&mut self) {
        match &mut self.state {
            State::Settled => {}
            State::Changes(left) => {
                *left -= 1;
                self.end_of_change();
            }
            State::InDoubt { waited, .. } => {
                *waited += 1;
                self.lose_patience();
            }
        }
    }

    /// Hears the beat of a step with or without `drafts`, where it is known or not what plain steps take.
    pub(super) fn observe(&mut self, drafts: bool, plain_is_known: bool, beat: f64) -> Verdict {
        self.beats.push(beat);
        // Slow, so that a change of tempo is not taken for noise before it is noticed.
        let distance = (beat / self.value).ln().abs().min(LARGEST_DISTANCE);
        self.spread += SPREAD_RATE * (distance - self.spread);
        if !drafts {
            if self.plain.len() == WITNESSES {
                self.plain.remove(0);
            }
            self.plain.push(beat);
        }
        match &mut self.state {
            State::Settled => self.look_for_changes(drafts && plain_is_known),
            State::Changes(left) => {
                *left -= 1;
                self.value = self.beats.median();
                self.end_of_change();
            }
            State::InDoubt { witnesses, waited } => {
                if drafts {
                    *waited += 1;
                } else {
                    *witnesses += 1;
                }
                if *witnesses >= WITNESSES {
                    return self.settle_doubt();
                }
                self.lose_patience();
            }
        }
        Verdict::Right
    }

    fn look_for_changes(&mut self, can_ask: bool) {
        let all = self.beats.median();
        let changed = self.beats.is_full() && self.is_off(all, self.value, OF_ALL);
        let plain = median(self.plain.iter().copied());
        let contradicted =
            self.plain.len() == WITNESSES && self.is_off(plain, self.value, OF_WITNESSES);
        if can_ask && (changed || contradicted) {
            self.state = State::InDoubt {
                witnesses: 0,
                waited: 0,
            };
        } else if changed {
            self.change();
        }
    }

    fn end_of_change(&mut self) {
        if self.state == State::Changes(0) {
            self.state = State::Settled;
        }
    }

    fn lose_patience(&mut self) {
        if let State::InDoubt { waited, .. } = self.state
            && waited >= PATIENCE
        {
            self.change();
        }
    }

    /// Plain steps have spoken: where the others say the same it is so, and else the tempo is theirs.
    fn settle_doubt(&mut self) -> Verdict {
        let plain = median(self.plain.iter().copied());
        if self.is_off(plain, self.beats.median(), OF_WITNESSES) {
            self.value = plain;
            self.beats = RunningMedian::default();
            self.state = State::Settled;
            return Verdict::DraftsAreWrong;
        }
        self.change();
        Verdict::Right
    }

    fn change(&mut self) {
        self.plain.clear();
        self.value = self.beats.median();
        self.state = State::Changes(MEDIAN_OF);
    }

    fn is_off(&self, beat: f64, from: f64, margin: Margin) -> bool {
        let off = (beat / from).max(from / beat.max(f64::MIN_POSITIVE));
        off > margin.factor.max((margin.spreads * self.spread).exp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(tempo: &mut Tempo, drafts: bool, beats: &[f64]) -> Vec<Verdict> {
        let each = |&beat: &f64| tempo.observe(drafts, true, beat);
        beats.iter().map(each).collect()
    }

    fn calm() -> Tempo {
        let mut tempo = Tempo::default();
        for _ in 0..100 {
            hear(&mut tempo, true, &[1.0, 1.02, 0.99]);
            hear(&mut tempo, false, &[1.01]);
        }
        tempo
    }

    #[test]
    fn plain_steps_are_believed_and_one_slow_step_is_not() {
        let mut tempo = calm();
        hear(&mut tempo, false, &[1.0, 8.0, 1.0, 1.0]);
        assert_eq!(tempo.value(), 1.0);
        hear(&mut tempo, false, &[1.5; 40]);
        assert_eq!(tempo.value(), 1.5);
        assert!(tempo.is_settled());
    }

    #[test]
    fn a_change_that_drafts_tell_of_is_believed_if_plain_steps_tell_the_same() {
        let mut tempo = calm();
        hear(&mut tempo, true, &[1.5; 12]);
        assert!(tempo.wants_plain() && tempo.value() == 1.0);
        let verdicts = hear(&mut tempo, false, &[1.5, 1.45, 1.5]);
        assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Right));
        assert_eq!(tempo.value(), 1.5);
    }

    #[test]
    fn drafts_that_cost_more_than_was_learnt_are_not_taken_for_a_slow_machine() {
        let mut tempo = calm();
        hear(&mut tempo, true, &[1.5; 12]);
        let verdicts = hear(&mut tempo, false, &[1.0, 1.05, 0.97]);
        assert_eq!(verdicts.last(), Some(&Verdict::DraftsAreWrong));
        assert!(tempo.is_settled() && tempo.value() == 1.0);
    }

    #[test]
    fn a_tempo_that_plain_steps_contradict_does_not_last() {
        // It is taken for slow, and what is learnt of drafts meanwhile fits that.
        let mut tempo = calm();
        hear(&mut tempo, false, &[1.4; 40]);
        let mut verdicts = Vec::new();
        for step in 0..80 {
            let plain = step % 20 == 19 || tempo.wants_plain();
            let beat = if plain { 1.0 } else { 1.4 };
            verdicts.push(tempo.observe(!plain, true, beat));
            if verdicts.last() == Some(&Verdict::DraftsAreWrong) {
                break;
            }
        }
        assert_eq!(verdicts.last(), Some(&Verdict::DraftsAreWrong));
        assert_eq!(tempo.value(), 1.0);
    }

    #[test]
    fn without_plain_steps_drafts_are_believed_in_the_end() {
        let mut tempo = calm();
        hear(&mut tempo, true, &[1.5; 100]);
        assert!(tempo.is_settled() && tempo.value() == 1.5);
    }
}
