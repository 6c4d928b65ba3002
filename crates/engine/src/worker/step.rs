//! One step: from a plan to tokens.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use speculation::verify::{Settled, Verification};

use super::live::{End, LiveRequest, Since};
use super::speculate::{Ahead, Guess, Guesses};
use super::{Worker, panic_text};
use crate::door::RequestKey;
use crate::request::{FinishReason, Token, Update};
use crate::sampling::logprob;
use crate::scheduler::{SeqId, StepPlan, Work};

/// A token was chosen and told.
struct Taken {
    token: u32,
    /// Its choice is complete.
    ended: bool,
}

impl Worker {
    /// Plans, computes, chooses tokens and tells the callers.
    pub(super) fn plan_and_execute(&mut self) {
        let began = Instant::now();
        let plan = self.scheduler.plan();
        self.note(&plan);
        if plan.work.is_empty() {
            self.give_up_on_first_waiting();
            return;
        }
        let mut guesses = self.guess(&plan);
        let wanted = self.fill_batch(&plan, &guesses);
        self.metrics.stepped(self.batch.rows());
        self.offer_turnover();
        let executing = Instant::now();
        match self.execute() {
            Ok(()) => {
                let now = Instant::now();
                self.time_step(self.batch.rows(), now - executing);
                let mut row = 0;
                for (index, (work, wanted)) in plan.work.iter().zip(wanted).enumerate() {
                    self.settle(work, guesses.of_mut(index), row, now);
                    row += wanted;
                }
                self.learn(&plan, &guesses, began.elapsed());
                self.offer_turnover();
            }
            Err(error) => {
                tracing::error!(error, "a step failed");
                for work in &plan.work {
                    if let Some(&(key, _)) = self.owners.get(&work.id) {
                        self.fail(key, &error);
                    }
                }
            }
        }
    }

    /// Measures what the plan did to whom.
    fn note(&mut self, plan: &StepPlan) {
        let now = Instant::now();
        self.metrics.preempted(plan.preempted.len());
        for id in &plan.preempted {
            if let Some(&(key, index)) = self.owners.get(id)
                && let Some(request) = self.requests.get_mut(&key)
                && let Some(choice) = request.choices.get_mut(index)
            {
                self.drafting.preempted(*id);
                choice.preemptions += 1;
                tracing::debug!(request = %request.id, choice = index, "preempted");
            }
        }
        for admission in plan.admitted.iter().filter(|a| a.first_time) {
            self.metrics.looked_up(admission.tokens, admission.cached);
            if let Some(&(key, index)) = self.owners.get(&admission.id)
                && let Some(request) = self.requests.get_mut(&key)
            {
                request.place = None;
                if index == 0 {
                    request.cached = admission.cached;
                }
                if let Some(choice) = request.choices.get_mut(index) {
                    choice.first_step = Some(now);
                }
            }
        }
    }

    /// A plan is empty only if some sequence cannot even run alone. The checks at the door exclude that;
    /// should they be wrong, one request fails instead of all waiting for ever.
    fn give_up_on_first_waiting(&mut self) {
        let owner = self
            .scheduler
            .first_waiting()
            .and_then(|id| self.owners.get(&id));
        if let Some(&(key, _)) = owner {
            tracing::error!("a waiting sequence can never run");
            self.fail(key, "the request does not fit into the KV cache");
        }
    }

    /// Lays the plan's rows out for the executor. For each sequence, how many rows of scores it wants.
    fn fill_batch(&mut self, plan: &StepPlan, guesses: &Guesses) -> Vec<usize> {
        self.batch.clear();
        let mut wanted = Vec::with_capacity(plan.work.len());
        let mut with_draft = Vec::new();
        for (index, work) in plan.work.iter().enumerate() {
            let Some(sequence) = self.scheduler.sequence(work.id) else {
                wanted.push(0);
                continue;
            };
            let mut tokens = &sequence.tokens[work.rows.clone()];
            let draft = guesses.draft(index);
            if !draft.is_empty() {
                with_draft.clear();
                with_draft.extend_from_slice(tokens);
                with_draft.extend_from_slice(draft);
                tokens = &with_draft;
            }
            let table = sequence.table.as_slice();
            let rows = self.batch.push(tokens, work.rows.start, table);
            let scored = self.scored_rows(work);
            for position in scored.clone() {
                self.batch.want(rows.start + (position - work.rows.start));
            }
            let choosing = if work.reaches_end { 1 + draft.len() } else { 0 };
            for row in rows.end - choosing..rows.end {
                self.batch.want(row);
            }
            wanted.push(scored.len() + choosing);
        }
        wanted
    }

    /// Positions in `work` whose scores become log-probabilities of the prompt.
    pub(super) fn scored_rows(&self, work: &Work) -> std::ops::Range<usize> {
        let unscored = match self.owners.get(&work.id) {
            Some((key, 0)) => self.requests.get(key).map(LiveRequest::unscored),
            _ => None,
        };
        let unscored = unscored.unwrap_or(0..0);
        let start = work.rows.start.max(unscored.start);
        start..work.rows.end.min(unscored.end).max(start)
    }

    fn execute(&mut self) -> Result<(), String> {
        let Self {
            executor,
            batch,
            logits,
            ..
        } = self;
        match catch_unwind(AssertUnwindSafe(|| executor.execute(batch, logits))) {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(panic) => Err(format!(
                "executing a step failed: {}",
                panic_text(panic.as_ref())
            )),
        }
    }

    /// Takes a sequence's results, which begin at `row` of the logits. Behind a guess there is one row more
    /// for each of its tokens: each gives the token that comes there without any guess, and counts while
    /// all tokens before it were guessed right.
    fn settle(&mut self, work: &Work, guess: Option<&mut Guess>, row: usize, now: Instant) {
        let Some(&(key, index)) = self.owners.get(&work.id) else {
            return;
        };
        let scored = self.scored_rows(work);
        let last = row + scored.len();
        self.score_prompt(key, work, scored, row);
        if !work.reaches_end {
            self.scheduler.commit(work.id, work.rows.len(), &[]);
            return;
        }
        let Some(request) = self.requests.get_mut(&key) else {
            return;
        };
        if !request.started {
            request.started = true;
            self.metrics.prompt_read(request.prompt_len, request.cached);
            let prompt = std::mem::take(&mut request.scored_prompt);
            request.tell(Update::Started {
                cached_tokens: request.cached,
                prompt,
            });
        }
        if request.wants_no_tokens() {
            self.scheduler.commit(work.id, work.rows.len(), &[]);
            self.finish(key, index, (FinishReason::Length, None), now);
            return;
        }
        let mut rows = work.rows.len();
        let Some(guess) = guess else {
            self.settle_row(work.id, rows, last, Ahead::default(), now);
            return;
        };
        let mut walk = Verification::new(&guess.tokens);
        let mut ended = false;
        while let Some(ahead) = walk.row().filter(|_| !ended) {
            let guesses = guess.from(ahead);
            let Some(settled) = self.settle_row(work.id, rows, last + ahead, guesses, now) else {
                guess.verified = guess.accepted;
                return;
            };
            ended = settled.ended;
            guess.chosen += 1;
            // Behind an end nothing is verified: those guesses were neither right nor wrong.
            guess.verified = match walk.settle(settled.token) {
                Settled::Accepted if ended => walk.accepted(),
                _ => guess.tokens.len(),
            };
            guess.accepted = walk.accepted();
            rows = 1;
        }
    }

    /// Chooses a token from one row of the logits, where the guesses `ahead` begin, and counts `rows` more rows
    /// as computed. `None` if that failed, and the request with it.
    fn settle_row(
        &mut self,
        id: SeqId,
        rows: usize,
        row: usize,
        ahead: Ahead<'_>,
        now: Instant,
    ) -> Option<Taken> {
        let &(key, index) = self.owners.get(&id)?;
        let request = self.requests.get_mut(&key)?;
        let choice = request.choices.get_mut(index)?;
        let scores = self.logits.row_mut(row);
        let known = self.vocabulary.vocab_size();
        let scratch = &mut self.scratch;
        let sampled = catch_unwind(AssertUnwindSafe(|| {
            choice.sampler.sample(scores, known, ahead.drawn(), scratch)
        }))
        .unwrap_or_else(|panic| Err(panic_text(panic.as_ref())));
        let chosen = match sampled {
            Ok(chosen) => chosen,
            Err(error) => {
                self.fail(key, &format!("choosing a token failed: {error}"));
                return None;
            }
        };
        let token = chosen.token.id;
        choice.drafts += ahead.counts(token);
        self.scheduler.commit(id, rows, &[token]);
        match request.clock_token(index, now) {
            Some(Since::Submission(time)) => self.metrics.first_token(time),
            Some(Since::LastToken(time)) => self.metrics.next_token(time),
            None => {}
        }
        let end = request.take_token(index, chosen, self.vocabulary.as_ref());
        let ended = end.is_some();
        if let Some(end) = end {
            self.finish(key, index, end, now);
        }
        Some(Taken { token, ended })
    }

    fn score_prompt(
        &mut self,
        key: RequestKey,
        work: &Work,
        positions: std::ops::Range<usize>,
        first_row: usize,
    ) {
        let (Some(request), Some(sequence)) = (
            self.requests.get_mut(&key),
            self.scheduler.sequence(work.id),
        ) else {
            return;
        };
        let best = request.sampling.prompt_logprobs.unwrap_or_default();
        for (row, position) in positions.enumerate() {
            let id = sequence.tokens[position + 1];
            request.scored_prompt.push(Token {
                id,
                logprob: Some(logprob(self.logits.row(first_row + row), id, best)),
            });
        }
    }

    fn finish(&mut self, key: RequestKey, index: usize, end: End, now: Instant) {
        let Some(request) = self.requests.get_mut(&key) else {
            return;
        };
        let outcome = end.0.into();
        request.finish(index, end);
        self.metrics.ended(outcome, &request.life(index, now));
        let sequence = request.choices.get(index).map(|choice| choice.sequence);
        if request.is_finished() {
            self.requests.remove(&key);
        }
        if let Some(sequence) = sequence {
            self.release(sequence);
        }
    }
}
