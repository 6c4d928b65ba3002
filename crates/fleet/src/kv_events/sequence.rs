//! Which messages were missed: the pure half of the subscriber.
//!
//! A publisher numbers its messages from 0 and keeps the last few thousand for replay. One connection
//! delivers them in order, but some may be missed: before we came, while we were away, or because we were
//! too slow. And a publisher that restarts begins at 0 again, with an empty cache.
//!
//! So a replay starts *at the last message we have* rather than after it. If the same message comes back,
//! it is the same publisher and what follows is what we missed. If another message stands under its number,
//! or none at all, the publisher is a new one and everything we knew is void. If the replay starts later,
//! its buffer has run over, and what lies between is lost.

/// Why exact knowledge of a worker's cache was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// We came after it had published, and it keeps no record that far back.
    Beginning {
        /// Messages missed.
        messages: u64,
    },
    /// Messages went missing and could not be had again.
    Gap {
        /// Messages missed.
        messages: u64,
    },
    /// It is another process than before, with an empty cache.
    Restart,
    /// A message came that could not be read.
    Unreadable,
}

impl Lost {
    /// One word, for labels and logs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Beginning { .. } => "beginning",
            Self::Gap { .. } => "gap",
            Self::Restart => "restart",
            Self::Unreadable => "unreadable",
        }
    }

    /// Messages missed, as far as can be told.
    pub fn messages(self) -> u64 {
        match self {
            Self::Beginning { messages } | Self::Gap { messages } => messages,
            Self::Restart => 0,
            Self::Unreadable => 1,
        }
    }
}

/// A message's number, and a digest that tells it from others of that number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) number: u64,
    pub(super) digest: u64,
}

/// What to do with a live message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Live {
    /// Take it in.
    Apply,
    /// Had already, from a replay.
    Skip,
    /// Something is missing: replay if possible, then ask again.
    CatchUp,
    /// Forget what is known, then take it in.
    ForgetThenApply(Lost),
}

/// What to do with a replayed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replayed {
    /// Take it in.
    Apply,
    /// Had already.
    Skip,
    /// Forget what is known, then take it in.
    ForgetThenApply(Lost),
    /// This is another publisher: forget what is known and replay from the beginning.
    StartOver(Lost),
}

/// How far one publisher's messages have been taken in.
#[derive(Debug, Clone, Default)]
pub(super) struct Sequence {
    last: Option<Mark>,
    /// The last message taken in from a replay: up to there live messages may repeat it.
    replayed_to: Option<u64>,
    /// Whether the replay under way has brought anything.
    replay_brought_any: bool,
}

impl Sequence {
    /// Where a replay has to start.
    pub(super) fn begin_replay(&mut self) -> u64 {
        self.replay_brought_any = false;
        self.last.map_or(0, |last| last.number)
    }

    /// Judges a replayed message.
    pub(super) fn replayed(&mut self, mark: Mark) -> Replayed {
        let is_first = !std::mem::replace(&mut self.replay_brought_any, true);
        let verdict = match self.last {
            None if mark.number == 0 => Replayed::Apply,
            None => Replayed::ForgetThenApply(Lost::Beginning {
                messages: mark.number,
            }),
            Some(last) if is_first && mark == last => Replayed::Skip,
            Some(last) if is_first && mark.number <= last.number => {
                self.start_over();
                return Replayed::StartOver(Lost::Restart);
            }
            Some(last) if mark.number <= last.number => Replayed::Skip,
            // Without the message we have in front, nothing proves that this is the same publisher.
            Some(last) if is_first || mark.number > last.number + 1 => {
                Replayed::ForgetThenApply(Lost::Gap {
                    messages: mark.number - last.number - 1,
                })
            }
            Some(_) => Replayed::Apply,
        };
        if verdict != Replayed::Skip {
            self.last = Some(mark);
        }
        self.replayed_to = self.last.map(|last| last.number);
        verdict
    }

    /// Judges the end of a replay: true if the replay must be asked for again, from the beginning,
    /// because a publisher that does not have our last message is a new one.
    pub(super) fn replay_ended(&mut self) -> bool {
        if self.replay_brought_any || self.last.is_none() {
            return false;
        }
        self.start_over();
        true
    }

    /// Judges a live message. `can_catch_up` is false once a replay was tried.
    pub(super) fn live(&mut self, mark: Mark, can_catch_up: bool) -> Live {
        let verdict = match self.last {
            None if mark.number == 0 => Live::Apply,
            None if can_catch_up => return Live::CatchUp,
            None => Live::ForgetThenApply(Lost::Beginning {
                messages: mark.number,
            }),
            Some(last) if last.number.checked_add(1) == Some(mark.number) => Live::Apply,
            Some(last) if mark.number > last.number => {
                if can_catch_up {
                    return Live::CatchUp;
                }
                Live::ForgetThenApply(Lost::Gap {
                    messages: mark.number - last.number - 1,
                })
            }
            Some(_) if self.replayed_to.is_some_and(|to| mark.number <= to) => return Live::Skip,
            Some(_) if can_catch_up && mark.number > 0 => return Live::CatchUp,
            Some(_) => Live::ForgetThenApply(Lost::Restart),
        };
        self.last = Some(mark);
        if self.replayed_to.is_some_and(|to| mark.number > to) {
            self.replayed_to = None;
        }
        verdict
    }

    fn start_over(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mark(number: u64) -> Mark {
        Mark {
            number,
            digest: number ^ 0xabc,
        }
    }

    fn other_life(number: u64) -> Mark {
        Mark {
            number,
            digest: number ^ 0xdef,
        }
    }

    fn at(number: u64) -> Sequence {
        let mut sequence = Sequence::default();
        for earlier in 0..=number {
            assert_eq!(sequence.live(mark(earlier), true), Live::Apply);
        }
        sequence
    }

    #[test]
    fn a_gap_is_never_passed_over_in_silence() {
        let mut sequence = at(5);
        assert_eq!(sequence.live(mark(8), true), Live::CatchUp);
        assert_eq!(
            sequence.live(mark(8), false),
            Live::ForgetThenApply(Lost::Gap { messages: 2 })
        );
        assert_eq!(sequence.live(mark(9), true), Live::Apply);
    }

    #[test]
    fn a_late_comer_without_replay_says_what_it_missed() {
        let mut sequence = Sequence::default();
        assert_eq!(
            sequence.live(mark(7), false),
            Live::ForgetThenApply(Lost::Beginning { messages: 7 })
        );
    }

    #[test]
    fn a_replay_fills_a_gap_and_its_overlap_is_skipped() {
        let mut sequence = at(5);
        assert_eq!(sequence.live(mark(8), true), Live::CatchUp);
        assert_eq!(sequence.begin_replay(), 5);
        assert_eq!(sequence.replayed(mark(5)), Replayed::Skip);
        for number in 6..=9 {
            assert_eq!(sequence.replayed(mark(number)), Replayed::Apply);
        }
        assert!(!sequence.replay_ended());
        assert_eq!(sequence.live(mark(8), false), Live::Skip);
        assert_eq!(sequence.live(mark(9), true), Live::Skip);
        assert_eq!(sequence.live(mark(10), true), Live::Apply);
    }

    #[test]
    fn a_replay_that_starts_too_late_is_a_gap() {
        let mut sequence = at(5);
        sequence.begin_replay();
        assert_eq!(
            sequence.replayed(mark(9)),
            Replayed::ForgetThenApply(Lost::Gap { messages: 3 })
        );
        assert_eq!(sequence.replayed(mark(10)), Replayed::Apply);
    }

    #[test]
    fn a_replay_that_starts_right_after_our_last_message_proves_nothing() {
        let mut sequence = at(5);
        sequence.begin_replay();
        assert_eq!(
            sequence.replayed(mark(6)),
            Replayed::ForgetThenApply(Lost::Gap { messages: 0 })
        );
    }

    #[test]
    fn a_restarted_publisher_is_known_by_its_other_message() {
        let mut sequence = at(5);
        sequence.begin_replay();
        assert_eq!(
            sequence.replayed(other_life(5)),
            Replayed::StartOver(Lost::Restart)
        );
        assert_eq!(sequence.begin_replay(), 0);
        assert_eq!(sequence.replayed(other_life(0)), Replayed::Apply);
    }

    #[test]
    fn a_restarted_publisher_is_known_by_its_silence() {
        let mut sequence = at(5);
        sequence.begin_replay();
        assert!(sequence.replay_ended());
        assert_eq!(sequence.begin_replay(), 0);
        assert!(!sequence.replay_ended());
        assert_eq!(sequence.live(other_life(0), true), Live::Apply);
    }

    #[test]
    fn a_number_that_falls_on_a_live_stream_is_a_restart() {
        let mut sequence = at(5);
        assert_eq!(
            sequence.live(other_life(0), true),
            Live::ForgetThenApply(Lost::Restart)
        );
        assert_eq!(sequence.live(other_life(3), true), Live::CatchUp);
    }

    proptest! {
        /// Whatever is dropped and whenever we replay, a message is taken in at most once, in order, and
        /// every message that is not is announced as lost.
        #[test]
        fn every_message_is_taken_in_once_or_announced_as_lost(
            delivered in proptest::collection::vec(any::<bool>(), 1..80),
            kept in 1_u64..20,
        ) {
            let mut sequence = Sequence::default();
            let mut taken: Vec<u64> = Vec::new();
            let mut announced = 0;
            for (number, delivered) in (0_u64..).zip(&delivered) {
                if !delivered {
                    continue;
                }
                let mut verdict = sequence.live(mark(number), true);
                if verdict == Live::CatchUp {
                    let start = sequence.begin_replay().max((number + 1).saturating_sub(kept));
                    for replayed in start..=number {
                        match sequence.replayed(mark(replayed)) {
                            Replayed::Apply => taken.push(replayed),
                            Replayed::Skip => {}
                            Replayed::ForgetThenApply(lost) => {
                                announced += lost.messages();
                                taken.push(replayed);
                            }
                            Replayed::StartOver(_) => prop_assert!(false, "nobody restarted"),
                        }
                    }
                    prop_assert!(!sequence.replay_ended());
                    verdict = sequence.live(mark(number), false);
                    prop_assert_eq!(verdict, Live::Skip);
                }
                match verdict {
                    Live::Apply => taken.push(number),
                    Live::Skip => {}
                    Live::ForgetThenApply(lost) => {
                        announced += lost.messages();
                        taken.push(number);
                    }
                    Live::CatchUp => prop_assert!(false),
                }
            }
            prop_assert!(taken.windows(2).all(|pair| pair[0] < pair[1]));
            if let Some(last) = taken.last() {
                prop_assert_eq!(taken.len() as u64 + announced, last + 1);
            }
        }
    }
}
