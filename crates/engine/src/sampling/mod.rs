//! Which token comes next.
//!
//! The way of a row of scores: log-probabilities are read off first, from what the model said; then the
//! grammar and `min_tokens` make tokens impossible, bias and penalties push them, and one is chosen.

mod choose;
mod grammar;
mod penalties;
mod random;
mod scores;

use std::sync::Arc;

use crate::request::{Sampling, Token, TokenLogprob};
use choose::Choice;
pub(crate) use choose::Scratch;
pub(crate) use grammar::{Grammar, Grammars};
use penalties::Occurrences;

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

    /// Chooses the next token from the model's scores, of which the first `known` have a name in the
    /// vocabulary. The row is spent.
    pub(crate) fn sample(
        &mut self,
        row: &mut [f32],
        known: usize,
        scratch: &mut Scratch,
    ) -> Result<Chosen, String> {
        let raw = self.sampling.logprobs.map(|_| row.to_vec());
        let known = known.min(row.len());
        let row = &mut row[..known];
        self.push_scores(row, 0);
        if let Some(grammar) = &mut self.grammar {
            grammar.mask(row)?;
        }
        let id = self.choose(row, 0, scratch).ok_or(
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

    /// What would most likely be chosen `ahead` tokens from now, going by a draft model's scores: the same
    /// draw falls on the same token wherever both models agree. What only the tokens in between decide
    /// (their penalties, the grammar) is left out; then a guess may be wrong, which costs time only. The
    /// row is spent.
    pub(crate) fn guess(
        &self,
        row: &mut [f32],
        ahead: usize,
        known: usize,
        scratch: &mut Scratch,
    ) -> Option<u32> {
        let known = known.min(row.len());
        let row = &mut row[..known];
        self.push_scores(row, ahead);
        self.choose(row, ahead, scratch)
    }

    /// By how much the score of a guess leads that of the best other token. To be asked right after
    /// [`Sampler::guess`], with what is left of the row, which is spent.
    pub(crate) fn lead(row: &mut [f32], known: usize, guess: u32) -> f32 {
        let known = known.min(row.len());
        let row = &mut row[..known];
        let Some(score) = row.get_mut(guess as usize) else {
            return f32::NEG_INFINITY;
        };
        let own = std::mem::replace(score, f32::NEG_INFINITY);
        scores::best(row).map_or(f32::INFINITY, |other| own - other.value)
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

    fn choose(&self, row: &[f32], ahead: usize, scratch: &mut Scratch) -> Option<u32> {
        let choice = Choice {
            temperature: self.sampling.temperature,
            top_k: self.sampling.top_k,
            top_p: self.sampling.top_p,
            min_p: self.sampling.min_p,
        };
        let key = random::key(self.seed, self.choice, self.generated + ahead);
        choice.choose(row, key, scratch)
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
            .sample(&mut row, 4, &mut Scratch::default())
            .unwrap();
        assert_eq!(chosen.token.id, 2);
        let logprob = chosen.token.logprob.unwrap();
        assert!((logprob.logprob - 0.125f32.ln()).abs() < 1e-6);
        assert_eq!(logprob.top.iter().map(|t| t.0).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(logprob.rank, 3);
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
                    .sample(&mut row, 3, &mut Scratch::default())
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
            .sample(&mut row, 2, &mut Scratch::default())
            .unwrap();
        assert_eq!(chosen.token.id, 1);
    }

    #[test]
    fn scores_that_are_not_numbers_are_an_error_not_a_panic() {
        let mut row = [f32::NAN; 3];
        assert!(
            sampler(Sampling::default())
                .sample(&mut row, 3, &mut Scratch::default())
                .is_err()
        );
    }
}
