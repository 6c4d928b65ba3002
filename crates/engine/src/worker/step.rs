//! One step: from a plan to tokens.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::live::{End, LiveRequest, Since};
use super::{Worker, panic_text};
use crate::door::RequestKey;
use crate::request::{FinishReason, Token, Update};
use crate::sampling::logprob;
use crate::scheduler::{StepPlan, Work};

impl Worker {
    /// Plans, computes, chooses tokens and tells the callers.
    pub(super) fn plan_and_execute(&mut self) {
        let plan = self.scheduler.plan();
        self.note(&plan);
        if plan.work.is_empty() {
            self.give_up_on_first_waiting();
            return;
        }
        let wanted = self.fill_batch(&plan);
        self.metrics.stepped(self.batch.rows());
        match self.execute() {
            Ok(()) => {
                let now = Instant::now();
                let mut row = 0;
                for (work, wanted) in plan.work.iter().zip(wanted) {
                    self.settle(work, row, now);
                    row += wanted;
                }
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
    fn fill_batch(&mut self, plan: &StepPlan) -> Vec<usize> {
        self.batch.clear();
        let mut wanted = Vec::with_capacity(plan.work.len());
        for work in &plan.work {
            let Some(sequence) = self.scheduler.sequence(work.id) else {
                wanted.push(0);
                continue;
            };
            let rows = self.batch.push(
                &sequence.tokens[work.rows.clone()],
                work.rows.start,
                sequence.table.as_slice(),
            );
            let scored = self.scored_rows(work);
            for position in scored.clone() {
                self.batch.want(rows.start + (position - work.rows.start));
            }
            if work.reaches_end {
                self.batch.want(rows.end - 1);
            }
            wanted.push(scored.len() + usize::from(work.reaches_end));
        }
        wanted
    }

    /// Positions in `work` whose scores become log-probabilities of the prompt.
    fn scored_rows(&self, work: &Work) -> std::ops::Range<usize> {
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

    /// Takes a sequence's results, which begin at `row` of the logits.
    fn settle(&mut self, work: &Work, row: usize, now: Instant) {
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
        let Some(choice) = request.choices.get_mut(index) else {
            return;
        };
        let scores = self.logits.row_mut(last);
        let known = self.vocabulary.vocab_size();
        let scratch = &mut self.scratch;
        let sampled = catch_unwind(AssertUnwindSafe(|| {
            choice.sampler.sample(scores, known, scratch)
        }))
        .unwrap_or_else(|panic| Err(panic_text(panic.as_ref())));
        let chosen = match sampled {
            Ok(chosen) => chosen,
            Err(error) => return self.fail(key, &format!("choosing a token failed: {error}")),
        };
        self.scheduler
            .commit(work.id, work.rows.len(), &[chosen.token.id]);
        match request.clock_token(index, now) {
            Some(Since::Submission(time)) => self.metrics.first_token(time),
            Some(Since::LastToken(time)) => self.metrics.next_token(time),
            None => {}
        }
        if let Some(end) = request.take_token(index, chosen, self.vocabulary.as_ref()) {
            self.finish(key, index, end, now);
        }
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
        if let Some(choice) = request.choices.get(index) {
            self.scheduler.remove(choice.sequence);
            self.owners.remove(&choice.sequence);
        }
        if request.is_finished() {
            self.requests.remove(&key);
        }
    }
}
