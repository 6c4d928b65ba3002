//! Requests that are in the engine, and the choices that are made for them.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;

use crate::door::{QueuePlace, Submission};
use crate::metrics::Life;
use crate::request::{DraftCounts, FinishReason, Sampling, StopMatch, Token, Update};
use crate::sampling::{Chosen, Sampler};
use crate::scheduler::SeqId;
use crate::text::TextStream;
use crate::vocabulary::Vocabulary;

/// A request and its choices.
pub(super) struct LiveRequest {
    pub(super) id: Arc<str>,
    pub(super) sampling: Arc<Sampling>,
    pub(super) prompt_len: usize,
    pub(super) choices: Vec<LiveChoice>,
    /// Given back with the first step.
    pub(super) place: Option<QueuePlace>,
    /// Prompt tokens out of the cache.
    pub(super) cached: usize,
    pub(super) started: bool,
    /// Prompt tokens with log-probabilities, when they were asked for.
    pub(super) scored_prompt: Vec<Token>,
    submitted: Instant,
    updates: UnboundedSender<Update>,
}

/// One of the answers to a request.
pub(super) struct LiveChoice {
    pub(super) sequence: SeqId,
    pub(super) sampler: Sampler,
    pub(super) first_step: Option<Instant>,
    pub(super) preemptions: usize,
    pub(super) finished: bool,
    pub(super) drafts: DraftCounts,
    text: TextStream,
    generated: usize,
    max_tokens: usize,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
}

/// Why a choice ends.
pub(super) type End = (FinishReason, Option<StopMatch>);

/// How long after the last token, or after submission if there was none.
pub(super) enum Since {
    Submission(std::time::Duration),
    LastToken(std::time::Duration),
}

impl LiveRequest {
    /// Takes a submission over; `sequences` are its choices in the scheduler.
    pub(super) fn new(
        submission: Submission,
        sequences: Vec<SeqId>,
        vocabulary: &Arc<dyn Vocabulary>,
    ) -> Self {
        let Submission {
            request,
            max_tokens,
            seed,
            grammars,
            submitted,
            updates,
            place,
            ..
        } = submission;
        let sampling = Arc::new(request.sampling);
        let mut ends = sampling.stop_token_ids.clone();
        if !sampling.ignore_eos {
            ends.extend_from_slice(vocabulary.eos());
        }
        let mut grammars = grammars.into_iter();
        let choices = sequences
            .into_iter()
            .enumerate()
            .map(|(index, sequence)| LiveChoice {
                sequence,
                sampler: Sampler::new(
                    Arc::clone(&sampling),
                    seed,
                    index,
                    &request.prompt,
                    ends.clone(),
                    grammars.next(),
                ),
                text: TextStream::new(Arc::clone(vocabulary), &sampling, &request.prompt),
                generated: 0,
                max_tokens,
                preemptions: 0,
                first_step: None,
                first_token: None,
                last_token: None,
                finished: false,
                drafts: DraftCounts::default(),
            })
            .collect();
        let scored_prompt = match sampling.prompt_logprobs {
            Some(_) => request
                .prompt
                .first()
                .map(|&id| Token { id, logprob: None })
                .into_iter()
                .collect(),
            None => Vec::new(),
        };
        Self {
            id: request.id,
            prompt_len: request.prompt.len(),
            sampling,
            choices,
            place: Some(place),
            cached: 0,
            started: false,
            scored_prompt,
            submitted,
            updates,
        }
    }

    /// Tells the caller. One who has left is noticed by his cancellation, not here.
    pub(super) fn tell(&self, update: Update) {
        let _ = self.updates.send(update);
    }

    /// Positions whose scores are needed for the prompt's log-probabilities and are not yet known.
    pub(super) fn unscored(&self) -> std::ops::Range<usize> {
        match self.sampling.prompt_logprobs {
            // The scores at a position belong to the token after it; the first token has none.
            Some(_) if !self.started => self.scored_prompt.len() - 1..self.prompt_len - 1,
            _ => 0..0,
        }
    }

    /// A chosen token becomes text. Says whether, and why, the choice is complete.
    pub(super) fn take_token(
        &mut self,
        index: usize,
        chosen: Chosen,
        vocabulary: &dyn Vocabulary,
    ) -> Option<End> {
        let sampling = &self.sampling;
        let choice = self.choices.get_mut(index)?;
        choice.generated += 1;
        let id = chosen.token.id;
        let by_token = if !sampling.ignore_eos && vocabulary.eos().contains(&id) {
            Some((FinishReason::Stop, None))
        } else if sampling.stop_token_ids.contains(&id) {
            Some((FinishReason::Stop, Some(StopMatch::Token(id))))
        } else {
            None
        };
        let mut text = String::new();
        let by_text = if by_token.is_none() {
            let may_stop = choice.generated > sampling.min_tokens;
            choice.text.push(id, may_stop, &mut text)
        } else {
            if sampling.include_stop {
                choice.text.push(id, false, &mut text);
            }
            None
        };
        self.tell(Update::Delta {
            choice: index,
            text,
            tokens: vec![chosen.token],
        });
        let choice = self.choices.get(index)?;
        if by_token.is_some() {
            by_token
        } else if let Some(stop) = by_text {
            Some((FinishReason::Stop, Some(StopMatch::Text(stop))))
        } else if chosen.completes_format {
            Some((FinishReason::Stop, None))
        } else if choice.generated >= choice.max_tokens {
            Some((FinishReason::Length, None))
        } else {
            None
        }
    }

    /// Tells the caller that a choice is complete.
    pub(super) fn finish(&mut self, index: usize, (reason, stop): End) {
        let Some(choice) = self.choices.get_mut(index) else {
            return;
        };
        choice.finished = true;
        let mut text = String::new();
        // After a stop string nothing may follow, not even the bytes of half a character.
        if !matches!(stop, Some(StopMatch::Text(_))) {
            choice.text.finish(&mut text);
        }
        let drafts = choice.drafts;
        self.tell(Update::Finished {
            choice: index,
            text,
            reason,
            stop,
            drafts,
        });
    }

    /// Whether all choices are complete.
    pub(super) fn is_finished(&self) -> bool {
        self.choices.iter().all(|choice| choice.finished)
    }

    /// Whether no token may be generated at all.
    pub(super) fn wants_no_tokens(&self) -> bool {
        self.choices.iter().all(|choice| choice.max_tokens == 0)
    }

    /// Most tokens that may be guessed ahead for a choice. The last token of an answer needs no guess: it
    /// comes behind those that were guessed right.
    pub(super) fn guesses_allowed(&self, index: usize) -> usize {
        self.choices.get(index).map_or(0, |choice| {
            let left = choice.max_tokens.saturating_sub(choice.generated);
            let allowed = self.sampling.speculative_depth.unwrap_or(usize::MAX);
            left.saturating_sub(1).min(allowed)
        })
    }

    /// Notes when a token was chosen.
    pub(super) fn clock_token(&mut self, index: usize, now: Instant) -> Option<Since> {
        let choice = self.choices.get_mut(index)?;
        choice.first_token.get_or_insert(now);
        Some(match choice.last_token.replace(now) {
            None => Since::Submission(now - self.submitted),
            Some(last) => Since::LastToken(now - last),
        })
    }

    /// The life of a choice that ends now.
    pub(super) fn life(&self, index: usize, now: Instant) -> Life {
        let total = now - self.submitted;
        let Some(choice) = self.choices.get(index) else {
            return Life::default();
        };
        let begun = choice.first_step;
        Life {
            prompt_tokens: self.prompt_len,
            generated: choice.generated,
            preemptions: choice.preemptions,
            queued: begun.map(|begun| begun - self.submitted),
            prefill: begun
                .zip(choice.first_token)
                .map(|(begun, first)| first - begun),
            decode: choice
                .first_token
                .zip(choice.last_token)
                .map(|(first, last)| last - first),
            total,
        }
    }
}
