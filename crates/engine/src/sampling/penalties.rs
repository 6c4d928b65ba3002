//! Scores pushed up or down for tokens that were said before, or that the caller likes or dislikes.

use std::collections::HashMap;

use crate::request::Sampling;

/// Which tokens occurred. Kept only if some penalty needs it.
#[derive(Debug, Default)]
pub(crate) struct Occurrences {
    /// How often each token was generated; 0 for those of the prompt only.
    generated: HashMap<u32, u32>,
    counts: bool,
}

impl Occurrences {
    /// Of a choice that has generated nothing yet.
    pub(crate) fn new(sampling: &Sampling, prompt: &[u32]) -> Self {
        let repeats = sampling.repetition_penalty != 1.0;
        let counts =
            repeats || sampling.presence_penalty != 0.0 || sampling.frequency_penalty != 0.0;
        let mut generated = HashMap::new();
        if repeats {
            generated.extend(prompt.iter().map(|&id| (id, 0)));
        }
        Self { generated, counts }
    }

    /// Counts a generated token.
    pub(crate) fn add(&mut self, id: u32) {
        if self.counts {
            *self.generated.entry(id).or_default() += 1;
        }
    }

    /// Applies the request's bias and penalties to a row of scores.
    pub(crate) fn apply(&self, sampling: &Sampling, row: &mut [f32]) {
        for (&id, &bias) in &sampling.logit_bias {
            if let Some(score) = row.get_mut(id as usize) {
                *score += bias;
            }
        }
        for (&id, &count) in &self.generated {
            let Some(score) = row.get_mut(id as usize) else {
                continue;
            };
            if *score > 0.0 {
                *score /= sampling.repetition_penalty;
            } else {
                *score *= sampling.repetition_penalty;
            }
            *score -= sampling.frequency_penalty * count as f32;
            if count > 0 {
                *score -= sampling.presence_penalty;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn penalties_follow_their_formulas() {
        let sampling = Sampling {
            presence_penalty: 0.5,
            frequency_penalty: 0.25,
            repetition_penalty: 2.0,
            logit_bias: [(4, 1.5), (99, 1.0)].into(),
            ..Sampling::default()
        };
        let mut seen = Occurrences::new(&sampling, &[0, 1]);
        seen.add(2);
        seen.add(2);
        seen.add(77);
        let mut row = [4.0, -4.0, 4.0, 4.0, 4.0];
        seen.apply(&sampling, &mut row);
        assert_eq!(row, [2.0, -8.0, 1.0, 4.0, 5.5]);
    }

    #[test]
    fn nothing_is_counted_when_nothing_is_penalised() {
        let sampling = Sampling::default();
        let mut seen = Occurrences::new(&sampling, &[0]);
        seen.add(1);
        let mut row = [1.0, 1.0];
        seen.apply(&sampling, &mut row);
        assert_eq!(row, [1.0, 1.0]);
    }
}
