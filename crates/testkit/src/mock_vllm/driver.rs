//! The simulated worker on a real clock. One task owns it; requests come and leave through a channel.
//!
//! A step begins when the one before was due to end, not when this task got round to it: a late wake-up delays
//! tokens by itself and does not slow the machine down.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::kv_events::{BlockStored, ExtraKey, KvEvent, KvEventBatch, Medium};
use simulator::worker::{Job, SimWorker, WorkerEvent};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::books::SharedBooks;
use super::{Faults, MockConfig};

/// A machine that is further behind than this was stopped, and does not hurry to make up for it.
const LONGEST_SLIP: Duration = Duration::from_millis(50);

/// A fault may slow a machine down, not stop it: for that there is another one.
const SLOWEST: f64 = 1.0e-3;

/// What the driver is told.
pub(super) enum Order {
    /// A new request.
    Submit(Box<Submission>),
    /// Its client has left, or has its answer.
    Leave(usize),
}

/// A request and where its progress goes.
pub(super) struct Submission {
    pub(super) job: Job,
    /// Its tokens, those of the answer included.
    pub(super) tokens: Arc<[u32]>,
    pub(super) salt: Option<String>,
    /// Whether its answer ends by itself.
    pub(super) stops: bool,
    pub(super) to: mpsc::UnboundedSender<Progress>,
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// One more token.
    Token,
    /// All of them.
    Finished {
        /// Prompt tokens that came from the cache.
        cached_tokens: u64,
    },
    /// The machine can never hold it.
    Refused,
}

struct Open {
    submission: Submission,
    arrived: Instant,
    admitted: Option<Instant>,
    prefill: Option<Duration>,
}

pub(super) struct Driver {
    worker: SimWorker,
    block_tokens: usize,
    inbox: mpsc::UnboundedReceiver<Order>,
    faults: watch::Receiver<Faults>,
    books: SharedBooks,
    events: Option<mpsc::UnboundedSender<KvEventBatch>>,
    open: HashMap<usize, Open>,
    steps: u64,
}

impl Driver {
    pub(super) fn new(
        config: &MockConfig,
        inbox: mpsc::UnboundedReceiver<Order>,
        faults: watch::Receiver<Faults>,
        books: SharedBooks,
        events: Option<mpsc::UnboundedSender<KvEventBatch>>,
    ) -> Self {
        Self {
            worker: SimWorker::new(config.worker),
            block_tokens: config.worker.block_tokens.max(1) as usize,
            inbox,
            faults,
            books,
            events,
            open: HashMap::new(),
            steps: 0,
        }
    }

    /// Runs until nobody can send orders any more.
    pub(super) async fn drive(mut self) {
        let mut begins = Instant::now();
        loop {
            while let Ok(order) = self.inbox.try_recv() {
                self.obey(order);
            }
            let Some(step) = self.worker.step() else {
                self.publish_books();
                let Some(order) = self.inbox.recv().await else {
                    return;
                };
                self.obey(order);
                begins = Instant::now();
                continue;
            };
            self.steps += 1;
            self.publish_books();
            self.admit(&step.events, begins);
            let speed = self.faults.borrow().speed.max(SLOWEST);
            let ends = begins + step.takes.div_f64(speed);
            if !self.wait_until(ends).await {
                return;
            }
            let was_wedged = self.faults.borrow().wedged;
            while self.faults.borrow().wedged {
                if !self.wait_for_repair().await {
                    return;
                }
            }
            self.deliver(step.events);
            let now = Instant::now();
            begins = if was_wedged || now > ends + LONGEST_SLIP {
                now
            } else {
                ends
            };
        }
    }

    /// Takes orders until then. `false` if nobody is left to give any.
    async fn wait_until(&mut self, ends: Instant) -> bool {
        loop {
            tokio::select! {
                () = sleep_until(ends) => return true,
                order = self.inbox.recv() => match order {
                    Some(order) => self.obey(order),
                    None => return false,
                },
            }
        }
    }

    async fn wait_for_repair(&mut self) -> bool {
        tokio::select! {
            changed = self.faults.changed() => changed.is_ok(),
            order = self.inbox.recv() => match order {
                Some(order) => {
                    self.obey(order);
                    self.publish_books();
                    true
                }
                None => false,
            },
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Submit(submission) => {
                self.worker.submit(submission.job.clone());
                self.open.insert(
                    submission.job.id,
                    Open {
                        submission: *submission,
                        arrived: Instant::now(),
                        admitted: None,
                        prefill: None,
                    },
                );
            }
            Order::Leave(id) => {
                if self.open.remove(&id).is_some() {
                    self.worker.abort(id);
                    self.books.write(|books| books.aborted += 1);
                    self.publish_books();
                }
            }
        }
    }

    fn deliver(&mut self, happened: Vec<WorkerEvent>) {
        let mut changes = Vec::new();
        for event in happened {
            match event {
                WorkerEvent::Token { id, nth } => self.token(id, nth),
                WorkerEvent::Finished { id, cached_tokens } => self.finished(id, cached_tokens),
                WorkerEvent::Refused { id } => {
                    if let Some(open) = self.open.remove(&id) {
                        let _ = open.submission.to.send(Progress::Refused);
                    }
                }
                WorkerEvent::Stored {
                    id,
                    first,
                    parent,
                    hashes,
                    ..
                } => changes.extend(self.stored(id, first, parent, hashes)),
                WorkerEvent::Removed { hashes } => changes.push(KvEvent::Removed {
                    block_hashes: hashes,
                    medium: Medium::Resident,
                }),
                WorkerEvent::Admitted { .. } | WorkerEvent::Preempted { .. } => {}
            }
        }
        if let Some(events) = self.events.as_ref().filter(|_| !changes.is_empty()) {
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            let _ = events.send(KvEventBatch {
                timestamp: now.as_secs_f64(),
                events: changes,
                data_parallel_rank: Some(0),
            });
        }
    }

    /// Requests are admitted when a step begins; everything else happens at its end.
    fn admit(&mut self, events: &[WorkerEvent], begins: Instant) {
        for event in events {
            if let WorkerEvent::Admitted { id, .. } = event
                && let Some(open) = self.open.get_mut(id)
            {
                open.admitted.get_or_insert(begins.max(open.arrived));
            }
        }
    }

    fn token(&mut self, id: usize, nth: u64) {
        let Some(open) = self.open.get_mut(&id) else {
            return;
        };
        let _ = open.submission.to.send(Progress::Token);
        if nth == 1 {
            let now = Instant::now();
            open.prefill = open.admitted.map(|admitted| now - admitted);
            self.books
                .write(|books| books.ttft.observe(now - open.arrived));
        }
    }

    fn finished(&mut self, id: usize, cached_tokens: u64) {
        let Some(open) = self.open.remove(&id) else {
            return;
        };
        let _ = open
            .submission
            .to
            .send(Progress::Finished { cached_tokens });
        self.books.write(|books| {
            if open.submission.stops {
                books.stopped += 1;
            } else {
                books.length += 1;
            }
            books.end_to_end.observe(open.arrived.elapsed());
            books.prefill.observe(open.prefill.unwrap_or_default());
            books.computed_tokens += open.submission.job.prompt_tokens - cached_tokens;
            if let Some(admitted) = open.admitted {
                books.queue.observe(admitted - open.arrived);
            }
        });
    }

    /// The event of stored blocks. One of a request whose client left while the step ran is lost with it: its
    /// blocks stay unannounced, as a real engine's do that were never full.
    fn stored(
        &self,
        id: usize,
        first: usize,
        parent: Option<u64>,
        hashes: Vec<u64>,
    ) -> Option<KvEvent> {
        let open = self.open.get(&id)?;
        let span = first * self.block_tokens..(first + hashes.len()) * self.block_tokens;
        let salt = open.submission.salt.as_ref().filter(|_| first == 0);
        let mut extra_keys = vec![Vec::new(); hashes.len()];
        if let Some((salt, keys)) = salt.zip(extra_keys.first_mut()) {
            keys.push(ExtraKey::Text(salt.clone()));
        }
        Some(KvEvent::Stored(BlockStored {
            block_hashes: hashes,
            parent_block_hash: parent,
            token_ids: open.submission.tokens.get(span)?.to_vec(),
            block_size: self.block_tokens as u32,
            extra_keys,
            medium: Medium::Resident,
            ..BlockStored::default()
        }))
    }

    fn publish_books(&self) {
        let gauges = self.worker.gauges();
        self.books.write(|books| {
            books.running = gauges.running;
            books.waiting = gauges.waiting;
            books.kv_usage = gauges.kv_usage;
            books.steps = self.steps;
            books.machine = self.worker.counters();
        });
    }
}
