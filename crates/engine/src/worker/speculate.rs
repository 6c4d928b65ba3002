//! Guesses ahead of a step, and what was learnt from them behind it.

use std::time::Duration;

use speculation::verify::Distribution;
use speculation::{Confidence, Source};

use super::Worker;
use crate::drafting::{Decoding, DraftTime, Fate, Intent, Wanted};
use crate::request::DraftCounts;
use crate::sampling::Drawn;
use crate::scheduler::{Loan, StepPlan, Work};

/// The guesses of one step.
#[derive(Debug, Default)]
pub(super) struct Guesses {
    /// By place in the plan; `None` for sequences that read their prompt. Empty without speculation.
    guesses: Vec<Option<Guess>>,
    took: DraftTime,
}

/// What was guessed for a decoding sequence, perhaps nothing, and what became of it.
#[derive(Debug)]
pub(super) struct Guess {
    source: Source,
    /// Tokens that were to be guessed, had they been worth it.
    planned: usize,
    pub(super) tokens: Vec<u32>,
    /// What each of them was drawn from; empty if they were not drawn.
    odds: Vec<Distribution>,
    confidences: Vec<Confidence>,
    /// Blocks for the guesses; they go back with it.
    _loan: Option<Loan>,
    /// Tokens of the sequence before the step.
    before: usize,
    /// Guesses that were held against the truth.
    pub(super) verified: usize,
    /// Those of them that were right.
    pub(super) accepted: usize,
    /// Tokens that were chosen.
    pub(super) chosen: usize,
}

impl Guess {
    /// The guess at a row and all behind it.
    pub(super) fn from(&self, row: usize) -> Ahead<'_> {
        Ahead {
            tokens: self.tokens.get(row..).unwrap_or_default(),
            odds: self.odds.get(row),
        }
    }
}

/// Guesses that begin at a row that is to be chosen.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ahead<'a> {
    tokens: &'a [u32],
    odds: Option<&'a Distribution>,
}

impl<'a> Ahead<'a> {
    /// The first of them, if it was drawn.
    pub(super) fn drawn(&self) -> Option<Drawn<'a>> {
        let (&token, odds) = self.tokens.first().zip(self.odds)?;
        Some(Drawn { token, odds })
    }

    /// What is known of them once the row's token is.
    pub(super) fn counts(&self, token: u32) -> DraftCounts {
        // The first wrong guess takes all behind it along.
        let right = self.tokens.first() == Some(&token);
        DraftCounts {
            drafted: if right { 1 } else { self.tokens.len() },
            accepted: usize::from(right),
        }
    }
}

impl Guesses {
    /// Tokens that follow a sequence's own in the step.
    pub(super) fn draft(&self, index: usize) -> &[u32] {
        let guess = self.guesses.get(index).and_then(Option::as_ref);
        guess.map_or(&[], |guess| &guess.tokens)
    }

    /// To note what became of it.
    pub(super) fn of_mut(&mut self, index: usize) -> Option<&mut Guess> {
        self.guesses.get_mut(index).and_then(Option::as_mut)
    }
}

impl Worker {
    /// Guesses what the decoding sequences of a plan will say.
    pub(super) fn guess(&mut self, plan: &StepPlan) -> Guesses {
        if self.drafting.rests() {
            return Guesses::default();
        }
        let mut intents = self.intend(plan);
        if intents.is_empty() {
            return Guesses::default();
        }
        for intent in intents.iter_mut().filter(|intent| intent.depth > 0) {
            intent.loan = self.scheduler.lend(intent.id, intent.depth);
            intent.depth = intent.loan.as_ref().map_or(0, |loan| loan.room);
        }
        let took = self.draft(&mut intents);
        let mut intents = intents.into_iter().peekable();
        let guesses = plan
            .work
            .iter()
            .map(|work| {
                let intent = intents.next_if(|intent| intent.id == work.id)?;
                Some(Guess {
                    source: intent.source,
                    planned: intent.depth,
                    tokens: intent.draft,
                    odds: intent.odds,
                    confidences: intent.confidences,
                    _loan: intent.loan,
                    before: work.rows.end,
                    verified: 0,
                    accepted: 0,
                    chosen: 0,
                })
            })
            .collect();
        Guesses { guesses, took }
    }

    /// Decides who drafts how deep: one intent for each decoding sequence, in the order of the plan.
    fn intend(&mut self, plan: &StepPlan) -> Vec<Intent> {
        let decoding: Vec<&Work> = plan.work.iter().filter(|w| self.decodes(w)).collect();
        let decoding: Vec<Decoding<'_>> = decoding
            .into_iter()
            .filter_map(|work| {
                let &(key, index) = self.owners.get(&work.id)?;
                let request = self.requests.get(&key)?;
                let sequence = self.scheduler.sequence(work.id)?;
                let room = self.scheduler.room_ahead(work.id);
                let choice = request.choices.get(index)?;
                Some(Decoding {
                    id: work.id,
                    salt: sequence.chain.salt(),
                    tokens: &sequence.tokens,
                    table: sequence.table.as_slice(),
                    names: sequence.chain.hashes(),
                    max_depth: request.guesses_allowed(index).min(room),
                    drafters: request.sampling.speculative_drafters,
                    ends: choice.sampler.ends(),
                })
            })
            .collect();
        if decoding.is_empty() {
            return Vec::new();
        }
        let budget = self.scheduler.rows_left(plan);
        let (mut intents, decision) = self.drafting.plan(&decoding, budget);
        self.metrics.decided(&decision);
        let mut left = budget;
        for intent in &mut intents {
            intent.depth = intent.depth.min(left);
            left -= intent.depth;
        }
        intents
    }

    /// Whether all that a sequence does in a step is to choose its next token.
    fn decodes(&self, work: &Work) -> bool {
        work.reaches_end && work.rows.len() == 1 && self.scored_rows(work).is_empty()
    }

    /// Lets the drafters make what is intended.
    fn draft(&mut self, intents: &mut [Intent]) -> DraftTime {
        let wanted: Vec<Wanted<'_>> = intents
            .iter_mut()
            .filter(|intent| intent.depth > 0)
            .filter_map(|intent| {
                let &(key, index) = self.owners.get(&intent.id)?;
                let choice = self.requests.get(&key)?.choices.get(index)?;
                let sequence = self.scheduler.sequence(intent.id)?;
                Some(Wanted {
                    tokens: &sequence.tokens,
                    table: sequence.table.as_slice(),
                    names: sequence.chain.hashes(),
                    sampler: &choice.sampler,
                    intent,
                })
            })
            .collect();
        let took = self.drafting.draft(wanted);
        self.tell_who_drafts();
        took
    }

    /// A draft model may have failed, and an operator may want others to draft.
    pub(super) fn tell_who_drafts(&self) {
        let (has_model, anybody) = (self.drafting.has_model(), !self.drafting.is_off());
        self.metrics.drafters_are(has_model, anybody);
    }

    /// Tells controller and metrics how the guesses did.
    pub(super) fn learn(&mut self, plan: &StepPlan, guesses: &Guesses, step: Duration) {
        let works = plan.work.iter().zip(&guesses.guesses);
        let fates: Vec<Fate<'_>> = works
            .filter_map(|(work, guess)| {
                let guess = guess.as_ref()?;
                // Behind the end of an answer nothing was verified, and nothing is known of the drafter.
                let whole = guess.verified == guess.tokens.len();
                let sequence = self.scheduler.sequence(work.id);
                let came = sequence.and_then(|sequence| sequence.tokens.get(guess.before..));
                Some(Fate {
                    id: work.id,
                    source: guess.source,
                    planned: if whole { guess.planned } else { guess.verified },
                    confidences: &guess.confidences,
                    drafted: guess.verified,
                    accepted: guess.accepted,
                    rows: guess.tokens.len(),
                    chosen: guess.chosen,
                    tokens: guess.before,
                    came: came.unwrap_or_default(),
                    ended: sequence.is_none(),
                })
            })
            .collect();
        if fates.is_empty() {
            self.drafting.pass(step);
            return;
        }
        for fate in fates.iter().filter(|fate| fate.drafted > 0) {
            self.metrics.verified(fate.drafted, fate.accepted);
        }
        let prompt_rows = rows(plan) - fates.len();
        self.drafting
            .observe(&fates, prompt_rows, step, guesses.took);
    }
}

fn rows(plan: &StepPlan) -> usize {
    plan.work.iter().map(|work| work.rows.len()).sum()
}
