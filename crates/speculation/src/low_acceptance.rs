//! When drafts are hardly ever accepted for long, and what to change then.
//!
//! Each kind of drafter is judged by itself, over spells of at least a minute and some hundred drafted tokens: a bad moment is no
//! reason to change anything, and who has stopped drafting does no harm.

use std::fmt;
use std::time::Duration;

use crate::acceptance::Acceptance;
use crate::source::{DrafterKind, Source};

/// Acceptance under which speculation is hardly ever worth its cost: a draft model for another kind of text, or a broken one.
pub const LOW_ACCEPTANCE: f64 = 0.2;

/// The shortest spell that is judged,
const SPELL: Duration = Duration::from_secs(60);
/// and the tokens that must have been drafted in it.
const ENOUGH: u64 = 300;
/// Saying it more often would only fill the log.
const SILENCE: Duration = Duration::from_secs(600);

/// A kind of drafter of whose tokens few were accepted. Displayed, it says what to change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LowAcceptance {
    /// Whose.
    pub kind: DrafterKind,
    /// Share of its tokens that were accepted in the spell behind us.
    pub acceptance: f64,
}

impl fmt::Display for LowAcceptance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            DrafterKind::Model => {
                "few drafts of the draft model are accepted: give one with --draft that was trained on the target's output, \
                 or leave it out (--drafter ngram, or at run time POST /admin/speculation {\"drafter\": \"ngram\"})"
            }
            DrafterKind::Ngram => {
                "few looked-up drafts are accepted: these texts hardly repeat themselves. Where forespeak:speculation_expected_speedup \
                 is not above 1, let a draft model guess alone (--draft PATH --drafter model) or nobody (--drafter off)"
            }
        })
    }
}

/// Looks out for it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watch {
    spells: [Spell; DrafterKind::ALL.len()],
}

#[derive(Debug, Clone, Copy, Default)]
struct Spell {
    began: Duration,
    /// What had been drafted and accepted by then.
    before: Tokens,
    said: Option<Duration>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Tokens {
    drafted: u64,
    accepted: u64,
}

impl Tokens {
    fn of(kind: DrafterKind, acceptance: &Acceptance) -> Self {
        let totals = Source::ALL
            .into_iter()
            .filter(|source| source.kind() == kind)
            .map(|source| acceptance.totals(source));
        totals.fold(Self::default(), |sum, totals| Self {
            drafted: sum.drafted + totals.draft_tokens(),
            accepted: sum.accepted + totals.accepted_tokens(),
        })
    }
}

impl Watch {
    /// What is to be said now, if anything.
    pub(crate) fn look(&mut self, now: Duration, acceptance: &Acceptance) -> Option<LowAcceptance> {
        let mut kinds = DrafterKind::ALL.into_iter().zip(&mut self.spells);
        kinds.find_map(|(kind, spell)| {
            let acceptance = spell.judge(now, || Tokens::of(kind, acceptance))?;
            Some(LowAcceptance { kind, acceptance })
        })
    }
}

impl Spell {
    /// The acceptance of a spell that is over, if it is low and that was not said just now.
    fn judge(&mut self, now: Duration, count: impl FnOnce() -> Tokens) -> Option<f64> {
        if now.saturating_sub(self.began) < SPELL {
            return None;
        }
        let tokens = count();
        let drafted = tokens.drafted - self.before.drafted;
        if drafted < ENOUGH {
            return None;
        }
        let accepted = tokens.accepted - self.before.accepted;
        (self.began, self.before) = (now, tokens);
        let acceptance = accepted as f64 / drafted as f64;
        let silent = |said| now.saturating_sub(said) < SILENCE;
        if acceptance >= LOW_ACCEPTANCE || self.said.is_some_and(silent) {
            return None;
        }
        self.said = Some(now);
        Some(acceptance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Strength;

    const LOOKUP: Source = Source::Ngram(Strength::Fair);

    /// Ten drafts of four tokens in every second. Gives the seconds in which something was said, and of whom.
    fn said(
        seconds: u64,
        accepted: impl Fn(u64) -> Vec<(Source, usize)>,
    ) -> Vec<(u64, DrafterKind)> {
        let (mut watch, mut acceptance) = (Watch::default(), Acceptance::default());
        let mut said = Vec::new();
        for second in 1..=seconds {
            let now = Duration::from_secs(second);
            for (source, accepted) in accepted(second) {
                for _ in 0..10 {
                    acceptance.observe(now, 1, source, 4, accepted);
                }
            }
            said.extend(watch.look(now, &acceptance).map(|low| (second, low.kind)));
        }
        said
    }

    #[test]
    fn only_lasting_trouble_is_told_and_not_again_and_again() {
        let never = said(700, |_| vec![(Source::Model, 0)]);
        assert_eq!(never, [(60, DrafterKind::Model), (660, DrafterKind::Model)]);
        let for_half_a_minute = said(700, |second| {
            vec![(Source::Model, usize::from(second > 30) * 2)]
        });
        assert_eq!(for_half_a_minute, []);
    }

    #[test]
    fn nothing_is_said_of_who_no_longer_drafts() {
        let at_first = said(2_000, |second| match second {
            1..=70 => vec![(Source::Model, 0)],
            _ => vec![],
        });
        assert_eq!(at_first, [(60, DrafterKind::Model)]);
    }

    #[test]
    fn a_good_drafter_does_not_hide_a_bad_one() {
        let both = |model, lookup| move |_| vec![(Source::Model, model), (LOOKUP, lookup)];
        assert_eq!(said(100, both(4, 0)), [(60, DrafterKind::Ngram)]);
        assert_eq!(said(100, both(0, 4)), [(60, DrafterKind::Model)]);
        let two = [(60, DrafterKind::Model), (61, DrafterKind::Ngram)];
        assert_eq!(said(100, both(0, 0)), two);
    }

    #[test]
    fn advice_is_about_who_guesses_badly() {
        let advice = |kind| {
            LowAcceptance {
                kind,
                acceptance: 0.1,
            }
            .to_string()
        };
        assert!(advice(DrafterKind::Model).contains("--drafter ngram"));
        assert!(advice(DrafterKind::Ngram).contains("--draft PATH"));
    }
}
