//! Which token comes next.
//!
//! The way of a row of scores: log-probabilities are read off first, from what the model said; then the
//! grammar and `min_tokens` make tokens impossible, bias and penalties push them, and one is chosen.
//!
//! # Drafts
//! A request with a seed, or a greedy one, has one right text: the token of a row is chosen by the luck of its position
//! alone, a draft model guesses with the same luck, and a guess counts if it equals the choice.
//!
//! Without a seed only the distribution is promised, and a draft model's tokens are accepted with `min(1, p/q)`,
//! which accepts more of them. It keeps the distribution exactly if
//! - `p` is what the row's token would be drawn from without a draft. It is: the row is processed as without one (grammar,
//!   `min_tokens`, bias, penalties, temperature, filters), and only the draw is another;
//! - the draft was drawn from `q`, whatever `q` is. It is the small model's distribution under the same bias, temperature
//!   and filters, and under the penalties as far as they are known, cut to its likeliest tokens ([`Choice::draw`]): the
//!   better it resembles `p` the more is accepted, and nothing else depends on it. It knows no grammar: a token that
//!   the mask forbids has `p = 0` and is never accepted;
//! - the draws of a draft, of its acceptance and of what stands in for it are independent, and each is used once
//!   ([`random`]);
//! - whether a token is put to the target does not depend on the token, only on `q` and on the tokens before it. So a
//!   draft that is cut off by the drafter's confidence is cut off by [`Guess::confidence`] of the odds.
//!
//! Looked-up drafts have no `q`; there `min(1, p/q)` is to choose as without a draft, which is what is done.

mod choose;
mod grammar;
mod penalties;
mod random;
mod scores;

use std::sync::Arc;

use speculation::Confidence;
use speculation::verify::Distribution;

use crate::request::{Sampling, Token, TokenLogprob};
use choose::Choice;
pub(crate) use choose::Scratch;
pub(crate) use grammar::{Grammar, Grammars};
use penalties::Occurrences;
pub(crate) use random::drawn_seed;

/// Chooses the tokens of one choice.
pub(crate) struct Sampler {
    sampling: Arc<Sampling>,
    seed: u64,
    choice: usize,
    generated: usize,
    occurrences: Occurrences,
    grammar: Option<Grammar>,
    /// Impossible before `min_tokens`.
    ends: Vec<u32>,
}

/// A token was chosen.
#[derive(Debug, PartialEq)]
pub(crate) struct Chosen {
    pub(crate) token: Token,
    /// The answer has the form that was asked for, and nothing may follow.
    pub(crate) completes_format: bool,
}

/// A token guessed for a position ahead.
#[derive(Debug, PartialEq)]
pub(crate) struct Guess {
    pub(crate) token: u32,
    /// What it was drawn from; `None` if it was chosen as the target is expected to choose.
    pub(crate) odds: Option<Distribution>,
}

impl Guess {
    /// How sure the drafter is of it. `row` is what [`Sampler::guess`] left of the scores; it is spent.
    pub(crate) fn confidence(&self, row: &mut [f32], known: usize) -> Confidence {
        match &self.odds {
            Some(odds) => Confidence::of_odds(odds.highest()),
            None => Confidence::of_lead(lead(row, known, self.token)),
        }
    }
}

/// By how much the score of a token leads that of the best other one. The row is spent.
fn lead(row: &mut [f32], known: usize, token: u32) -> f32 {
    let known = known.min(row.len());
    let row = &mut row[..known];
    let Some(score) = row.get_mut(token as usize) else {
        return f32::NEG_INFINITY;
    };
    let own = std::mem::replace(score, f32::NEG_INFINITY);
    scores::best(row).map_or(f32::INFINITY, |other| own - other.value)
}

/// A draft that stands at the row to be chosen, and what it was drawn from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drawn<'a> {
    pub(crate) token: u32,
    pub(crate) odds: &'a Distribution,
}

impl Sampler {
    /// `ends` are the tokens that would end the answer.
    pub(crate) fn new(
        sampling: Arc<Sampling>,
        seed: u64,
        choice: usize,
        prompt: &[u32],
        ends: Vec<u32>,
        grammar: Option<Grammar>,
    ) -> Self {
        Self {
            occurrences: Occurrences::new(&sampling, prompt),
            sampling,
            seed,
            choice,
            generated: 0,
            grammar,
            ends,
        }
    }

    /// The tokens that would end the answer.
    pub(crate) fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// Chooses the next token from the model's scores, of which the first `known` have a name in the
    /// vocabulary: as without a draft, unless one was `drawn`. The row is spent.
    pub(crate) fn sample(
        &mut self,
        row: &mut [f32],
        known: usize,
        drawn: Option<Drawn<'_>>,
        scratch: &mut Scratch,
    ) -> Result<Chosen, String> {
        let raw = self.sampling.logprobs.map(|_| row.to_vec());
        let known = known.min(row.len());
        let row = &mut row[..known];
        self.push_scores(row, 0);
        if let Some(grammar) = &mut self.grammar {
            grammar.mask(row)?;
        }
        let id = self.choose(row, drawn, scratch).ok_or(
            "no token is possible: the model's scores are not numbers, or all are excluded",
        )?;
        let completes_format = match &mut self.grammar {
            Some(grammar) => grammar.advance(id)?,
            None => false,
        };
        self.generated += 1;
        self.occurrences.add(id);
        Ok(Chosen {
            token: Token {
                id,
                logprob: raw
                    .map(|raw| logprob(&raw, id, self.sampling.logprobs.unwrap_or_default())),
            },
            completes_format,
        })
    }

    /// A guess of what will be chosen `ahead` tokens from now, going by a draft model's scores. What only the tokens in between decide
    /// (their penalties, the grammar) is left out; then a guess may be wrong, which costs time only. The
    /// row is spent.
    pub(crate) fn guess(
        &self,
        row: &mut [f32],
        ahead: usize,
        known: usize,
        scratch: &mut Scratch,
    ) -> Option<Guess> {
        let known = known.min(row.len());
        let row = &mut row[..known];
        self.push_scores(row, ahead);
        if !self.draws() {
            let key = random::key(self.seed, self.choice, self.generated + ahead);
            let token = self.filter().choose(row, key, scratch)?;
            return Some(Guess { token, odds: None });
        }
        let key = random::draft_key(self.seed, self.choice, self.generated, ahead);
        let (token, odds) = self.filter().draw(row, key, scratch)?;
        Some(Guess {
            token,
            odds: Some(odds),
        })
    }

    /// Whether drafts are drawn, and not chosen as the target will choose: see the module.
    fn draws(&self) -> bool {
        self.sampling.seed.is_none() && !self.filter().is_greedy()
    }

    /// Applies `min_tokens`, bias and penalties.
    fn push_scores(&self, row: &mut [f32], ahead: usize) {
        if self.generated + ahead < self.sampling.min_tokens {
            for &id in &self.ends {
                if let Some(score) = row.get_mut(id as usize) {
                    *score = f32::NEG_INFINITY;
                }
            }
        }
        self.occurrences.apply(&self.sampling, row);
    }

    fn choose(&self, row: &[f32], drawn: Option<Drawn<'_>>, scratch: &mut Scratch) -> Option<u32> {
        let key = random::key(self.seed, self.choice, self.generated);
        match drawn {
            Some(Drawn { token, odds }) => self.filter().judge(row, token, odds, key, scratch),
            None => self.filter().choose(row, key, scratch),
        }
    }

    fn filter(&self) -> Choice {
        Choice {
            temperature: self.sampling.temperature,
            top_k: self.sampling.top_k,
            top_p: self.sampling.top_p,
            min_p: self.sampling.min_p,
        }
    }
}

/// Log-probability of `id` and of the `count` best, from raw scores.
pub(crate) fn logprob(row: &[f32], id: u32, count: usize) -> TokenLogprob {
    let total = scores::log_sum_exp(row).unwrap_or(f32::INFINITY);
    TokenLogprob {
        logprob: row
            .get(id as usize)
            .map_or(f32::NEG_INFINITY, |score| score - total),
        rank: scores::rank(row, id),
        top: scores::best_few(row, count)
            .into_iter()
            .map(|best| (best.id, best.value - total))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(sampling: Sampling) -> Sampler {
        Sampler::new(Arc::new(sampling), 7, 0, &[], vec![1], None)
    }

    #[test]
    fn log_probabilities_are_those_of_the_model_not_of_the_sampler() {
        let mut sampler = sampler(Sampling {
            temperature: 0.0,
            logprobs: Some(2),
            logit_bias: [(2, 100.0)].into(),
            ..Sampling::default()
        });
        let mut row = [0.5f32.ln(), 0.25f32.ln(), 0.125f32.ln(), 0.125f32.ln()];
        let chosen = sampler
            .sample(&mut row, 4, None, &mut Scratch::default())
            .unwrap();
        assert_eq!(chosen.token.id, 2);
        let logprob = chosen.token.logprob.unwrap();
        assert!((logprob.logprob - 0.125f32.ln()).abs() < 1e-6);
        assert_eq!(logprob.top.iter().map(|t| t.0).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(logprob.rank, 3);
    }

    #[test]
    fn drafts_are_drawn_only_where_no_text_is_promised() {
        let guess = |sampling: Sampling| {
            let mut row = [0.1, 0.4, 0.3, 0.2f32].map(f32::ln);
            let scratch = &mut Scratch::default();
            sampler(sampling).guess(&mut row, 3, 4, scratch).unwrap()
        };
        let free = guess(Sampling::default());
        assert_eq!(free.odds.unwrap().entries().len(), 4);
        let seeded = guess(Sampling {
            seed: Some(7),
            ..Sampling::default()
        });
        let greedy = guess(Sampling {
            temperature: 0.0,
            ..Sampling::default()
        });
        assert_eq!((seeded.odds, greedy.odds), (None, None));
        assert_eq!(greedy.token, 1);
    }

    /// A drawn token that is withdrawn for being itself would leave the others more often than their odds say.
    #[test]
    fn a_drawn_token_has_no_say_in_whether_it_is_kept() {
        let guesses: Vec<(u32, Confidence)> = (0..50)
            .map(|ahead| {
                let mut row = [0.2, 0.5, 0.2, 0.1f32].map(f32::ln);
                let scratch = &mut Scratch::default();
                let guess = sampler(Sampling::default()).guess(&mut row, ahead, 4, scratch);
                let guess = guess.unwrap();
                (guess.token, guess.confidence(&mut row, 4))
            })
            .collect();
        let (first, confidence) = guesses[0];
        assert!(guesses.iter().any(|(token, _)| *token != first));
        assert!(guesses.iter().all(|(_, other)| *other == confidence));
    }

    #[test]
    fn no_end_before_min_tokens() {
        let mut sampler = sampler(Sampling {
            temperature: 0.0,
            min_tokens: 2,
            ..Sampling::default()
        });
        let ids: Vec<u32> = (0..3)
            .map(|_| {
                let mut row = [0.0, 9.0, 1.0];
                sampler
                    .sample(&mut row, 3, None, &mut Scratch::default())
                    .unwrap()
                    .token
                    .id
            })
            .collect();
        assert_eq!(ids, [2, 2, 1]);
    }

    #[test]
    fn tokens_without_a_name_are_never_chosen() {
        let mut sampler = sampler(Sampling {
            temperature: 0.0,
            ..Sampling::default()
        });
        let mut row = [0.0, 1.0, 9.0];
        let chosen = sampler
            .sample(&mut row, 2, None, &mut Scratch::default())
            .unwrap();
        assert_eq!(chosen.token.id, 1);
    }

    #[test]
    fn scores_that_are_not_numbers_are_an_error_not_a_panic() {
        let mut row = [f32::NAN; 3];
        assert!(
            sampler(Sampling::default())
                .sample(&mut row, 3, None, &mut Scratch::default())
                .is_err()
        );
    }
}
