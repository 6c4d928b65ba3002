//! The engine's thread: it owns all state and does one step after another.
//!
//! ```text
//! messages -> plan -> execute -> sample -> commit -> emit -> messages …
//! ```
//! With nothing to do it sleeps on its door. What goes wrong stays where it went wrong: a failing step
//! fails the requests in it, a failing choice its request. If the bookkeeping itself should panic, all
//! requests fail and it begins anew with empty blocks.

mod live;

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Instant, SystemTime};

use model::{Batch, Logits};
use tokio::sync::mpsc;

use crate::blocks::{BlockPool, KvEventBatch};
use crate::config::EngineConfig;
use crate::door::{Message, RequestKey, Submission};
use crate::executor::Executor;
use crate::metrics::{Metrics, Occupancy, Outcome};
use crate::request::{FinishReason, Token, Update};
use crate::sampling::{Scratch, logprob};
use crate::scheduler::{Limits, NewSequence, Scheduler, SeqId, StepPlan, Work};
use crate::vocabulary::Vocabulary;
use live::{LiveRequest, Since};

/// Prompt rows scored in one step. Each costs a row of logits: 64 of them are 40 MB for a vocabulary of
/// 150,000.
const MAX_SCORED_ROWS: usize = 64;

/// The state behind the engine's door.
pub(crate) struct Worker {
    config: EngineConfig,
    executor: Box<dyn Executor>,
    vocabulary: Arc<dyn Vocabulary>,
    messages: Receiver<Message>,
    metrics: Arc<Metrics>,
    events: Option<mpsc::Sender<KvEventBatch>>,
    scheduler: Scheduler,
    requests: HashMap<RequestKey, LiveRequest>,
    /// Whose choice a sequence is.
    owners: HashMap<SeqId, (RequestKey, usize)>,
    ending: Ending,
    batch: Batch,
    logits: Logits,
    scratch: Scratch,
}

/// When to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    No,
    WhenDone,
    Now,
}

/// What to do after the messages.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// There is work.
    Step,
    /// There is none; wait at the door.
    Sleep,
    /// It was told to end, or has drained.
    End,
}

impl Worker {
    pub(crate) fn new(
        config: &EngineConfig,
        executor: Box<dyn Executor>,
        vocabulary: Arc<dyn Vocabulary>,
        messages: Receiver<Message>,
        metrics: Arc<Metrics>,
        events: Option<mpsc::Sender<KvEventBatch>>,
    ) -> Self {
        Self {
            config: config.clone(),
            executor,
            vocabulary,
            messages,
            metrics,
            scheduler: empty_scheduler(config),
            events,
            requests: HashMap::new(),
            owners: HashMap::new(),
            ending: Ending::No,
            batch: Batch::default(),
            logits: Logits::default(),
            scratch: Scratch::default(),
        }
    }

    /// Runs until it is told to end, or has drained.
    pub(crate) fn run(mut self) {
        loop {
            match self.take_messages() {
                Next::Step => self.step(),
                Next::Sleep => match self.messages.recv() {
                    Ok(message) => self.handle(message),
                    Err(_) => break,
                },
                Next::End => break,
            }
        }
        self.fail_all("the server is shutting down");
        self.report();
    }

    /// Handles what has come through the door, without waiting.
    pub(crate) fn take_messages(&mut self) -> Next {
        loop {
            match self.messages.try_recv() {
                Ok(message) => self.handle(message),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Next::End,
            }
        }
        if self.ending == Ending::Now {
            return Next::End;
        }
        if !self.scheduler.is_idle() {
            return Next::Step;
        }
        self.report();
        match self.ending {
            Ending::WhenDone | Ending::Now => Next::End,
            Ending::No => Next::Sleep,
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Submit(submission) => self.take(*submission),
            Message::Cancel(key) => self.end_request(key, Outcome::Abort),
            Message::ResetPrefixCache => self.scheduler.pool.clear_cache(),
            Message::Drain => self.ending = self.ending.max(Ending::WhenDone),
            Message::Stop => self.ending = Ending::Now,
        }
    }

    /// One step, whatever may happen in it.
    pub(crate) fn step(&mut self) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.plan_and_execute())) {
            self.begin_anew(&panic_text(panic.as_ref()));
        }
        self.report();
    }

    fn take(&mut self, submission: Submission) {
        let request = &submission.request;
        let scored = request.sampling.prompt_logprobs.is_some();
        let sequences = self.scheduler.add(
            NewSequence {
                prompt: request.prompt.clone(),
                priority: request.priority,
                cache_salt: request.cache_salt.clone(),
                max_chunk: if scored { MAX_SCORED_ROWS } else { usize::MAX },
                reads_cache: !scored,
            },
            request.sampling.n,
        );
        let key = submission.key;
        for (index, &sequence) in sequences.iter().enumerate() {
            self.owners.insert(sequence, (key, index));
        }
        let live = LiveRequest::new(submission, sequences, &self.vocabulary);
        self.requests.insert(key, live);
    }

    fn plan_and_execute(&mut self) {
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

    fn finish(&mut self, key: RequestKey, index: usize, end: live::End, now: Instant) {
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

    fn fail(&mut self, key: RequestKey, error: &str) {
        if let Some(request) = self.requests.get(&key) {
            tracing::warn!(request = %request.id, error, "a request failed");
            request.tell(Update::Failed(error.to_owned()));
        }
        self.end_request(key, Outcome::Error);
    }

    /// Takes a request out, with all choices that are still running.
    fn end_request(&mut self, key: RequestKey, outcome: Outcome) {
        let Some(request) = self.requests.remove(&key) else {
            return;
        };
        let now = Instant::now();
        for (index, choice) in request.choices.iter().enumerate() {
            if !choice.finished {
                self.metrics.ended(outcome, &request.life(index, now));
                self.scheduler.remove(choice.sequence);
                self.owners.remove(&choice.sequence);
            }
        }
    }

    fn fail_all(&mut self, error: &str) {
        for key in self.requests.keys().copied().collect::<Vec<_>>() {
            self.fail(key, error);
        }
    }

    fn begin_anew(&mut self, error: &str) {
        tracing::error!(
            error,
            "the engine's bookkeeping failed; all requests are lost"
        );
        self.scheduler = empty_scheduler(&self.config);
        self.scheduler.pool.clear_cache();
        self.owners.clear();
        self.fail_all(&format!("the engine failed: {error}"));
    }

    /// Tells the outside how things stand.
    fn report(&mut self) {
        self.metrics.occupied(Occupancy {
            running: self.scheduler.running(),
            waiting: self.scheduler.waiting(),
            deferred: self.scheduler.held_back(),
            held_blocks: self.scheduler.pool.held(),
            blocks: self.config.num_blocks,
        });
        let events = self.scheduler.pool.take_events();
        if events.is_empty() {
            return;
        }
        if let Some(sender) = &self.events {
            let batch = KvEventBatch {
                at: SystemTime::now(),
                events,
            };
            if let Err(mpsc::error::TrySendError::Full(_)) = sender.try_send(batch) {
                self.metrics.kv_events_dropped();
                tracing::warn!("a batch of KV events was dropped: their reader is too slow");
            }
        }
    }
}

fn empty_scheduler(config: &EngineConfig) -> Scheduler {
    Scheduler::new(
        Limits {
            sequences: config.max_num_seqs,
            rows: config.max_num_batched_tokens,
        },
        BlockPool::new(
            config.num_blocks,
            config.enable_prefix_caching,
            config.kv_event_buffer > 0,
        ),
    )
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}
