//! The engine's thread: it owns all state and does one step after another.
//!
//! ```text
//! messages -> plan -> draft -> execute -> sample -> commit -> emit -> messages …
//! ```
//! With nothing to do it sleeps on its door. What goes wrong stays where it went wrong: a failing step
//! fails the requests in it, a failing choice its request. If the bookkeeping itself should panic, all
//! requests fail and it begins anew with empty blocks.

mod live;
mod share;
mod speculate;
mod step;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Instant, SystemTime};

use foldhash::{HashMap, HashMapExt};
use model::{Batch, Logits};
use tokio::sync::mpsc;

use crate::blocks::{BlockPool, KvEventBatch};
use crate::config::EngineConfig;
use crate::door::{Message, RequestKey, Submission};
use crate::drafting::{Drafting, TargetSizes};
use crate::executor::{Executor, Executors};
use crate::metrics::{Metrics, Occupancy, Outcome};
use crate::request::Update;
use crate::sampling::Scratch;
use crate::scheduler::{Limits, NewSequence, Scheduler, SeqId};
use crate::store::Clerk;
use crate::vocabulary::Vocabulary;
use live::LiveRequest;
use share::Share;

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
    drafting: Drafting,
    /// `None` without a block store.
    share: Option<Share>,
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
    /// Everybody waits for blocks; wait at the door until then.
    Wait(Instant),
    /// It was told to end, or has drained.
    End,
}

impl Worker {
    pub(crate) fn new(
        config: &EngineConfig,
        executors: Executors,
        vocabulary: Arc<dyn Vocabulary>,
        messages: Receiver<Message>,
        metrics: Arc<Metrics>,
        events: Option<mpsc::Sender<KvEventBatch>>,
        clerk: Option<Clerk>,
    ) -> Self {
        let target = TargetSizes {
            blocks: config.num_blocks,
            rows: config.max_num_batched_tokens,
            known: vocabulary.vocab_size(),
        };
        let worker = Self {
            config: config.clone(),
            executor: executors.target,
            vocabulary,
            messages,
            metrics,
            scheduler: empty_scheduler(config, clerk.is_some()),
            share: clerk.map(Share::new),
            drafting: Drafting::new(config.speculation, executors.draft, target),
            events,
            requests: HashMap::new(),
            owners: HashMap::new(),
            ending: Ending::No,
            batch: Batch::default(),
            logits: Logits::default(),
            scratch: Scratch::default(),
        };
        worker.tell_who_drafts();
        worker
    }

    /// Runs until it is told to end, or has drained.
    pub(crate) fn run(mut self) {
        loop {
            match self.take_messages() {
                Next::Step => self.step(),
                Next::Wait(until) => self.wait(until),
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
            self.end_overdue();
            return match self.stalled_until() {
                Some(deadline) => Next::Wait(deadline),
                None => Next::Step,
            };
        }
        self.report();
        match self.ending {
            Ending::WhenDone | Ending::Now => Next::End,
            Ending::No => Next::Sleep,
        }
    }

    /// Waits for a message, but not for long.
    pub(crate) fn wait(&mut self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        if let Ok(message) = self.messages.recv_timeout(left) {
            self.handle(message);
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Submit(submission) => self.take(*submission),
            Message::Cancel(key) => self.end_request(key, Outcome::Abort),
            Message::ResetPrefixCache => self.scheduler.pool.clear_cache(),
            Message::Speculate(config) => {
                self.drafting.configure(config);
                self.tell_who_drafts();
            }
            Message::Loaded(loaded) => self.take_loaded(loaded),
            Message::Moved(moved) => self.tell_moved(moved),
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
        let first = sequences.first().copied();
        let live = LiveRequest::new(submission, sequences, &self.vocabulary);
        self.requests.insert(key, live);
        if let Some(first) = first {
            self.ask_store(first);
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
                self.release(choice.sequence);
            }
        }
    }

    /// Takes a sequence out, with all that is kept for it.
    fn release(&mut self, id: SeqId) {
        if let Some(sequence) = self.scheduler.sequence(id) {
            let answer = sequence.tokens.get(sequence.prompt_len..);
            let answer = answer.unwrap_or_default();
            self.drafting.ended(id, sequence.chain.salt(), answer);
        }
        self.stop_waiting(id);
        self.scheduler.remove(id);
        self.owners.remove(&id);
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
        self.scheduler = empty_scheduler(&self.config, self.share.is_some());
        if let Some(share) = &mut self.share {
            share.forget_all();
        }
        self.scheduler.pool.clear_cache();
        self.drafting.begin_anew(self.owners.keys().copied());
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

fn empty_scheduler(config: &EngineConfig, with_store: bool) -> Scheduler {
    let pool = BlockPool::new(
        config.num_blocks,
        config.enable_prefix_caching,
        config.kv_event_buffer > 0,
    );
    Scheduler::new(
        Limits {
            sequences: config.max_num_seqs,
            rows: config.max_num_batched_tokens,
        },
        if with_store {
            pool.with_turnover()
        } else {
            pool
        },
    )
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}
