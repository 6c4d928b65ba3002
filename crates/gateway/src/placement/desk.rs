//! The desk at which requests are placed: everything that a decision needs, behind one lock.
//!
//! One lock and not a task of its own: a decision takes a few microseconds, less than handing it to
//! another task and waking up for the answer. Nothing is awaited, written or logged at length under it;
//! tokenising happens before, and what was decided is handed out after.
//!
//! Whoever waits is decided about *by whoever makes room*: the first in line gets a worker booked for it
//! and is woken with it in hand. Nobody wakes up in vain, and nobody can be overtaken between waking
//! and asking again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fleet::{Attempt, Snapshot, Worker, WorkerId};
use routing::Decision;
use routing::admission::{
    FairQueue, Pressure, QueueLimits, Refusal, TenantId, Verdict, Waiting, admit, turned_away,
};
use tokio::sync::oneshot;

use super::books::{Books, Now, Wanted};
use super::chosen::Chosen;
use super::claim::Claim;
use super::placement::Held;

/// The answer to a request, given at once.
pub(super) enum Answer {
    /// Go there.
    Booked(Booking),
    /// Wait for word, until this time at the latest.
    Wait {
        /// By which the desk knows who waits.
        number: u64,
        word: oneshot::Receiver<Held>,
        deadline: Duration,
    },
    /// Go away.
    Refused(Refusal),
}

/// A worker booked for a request. Plain: whoever gets it out of the lock makes it give itself back.
pub(super) struct Booking {
    pub(super) worker: Arc<Worker>,
    pub(super) claim: Claim,
    pub(super) attempt: Attempt,
    /// Cached tokens to expect in the worker's report.
    pub(super) predicted_cached: u64,
    pub(super) chosen: Arc<Chosen>,
}

/// Someone who waits.
pub(super) struct Waiter {
    number: u64,
    since: Duration,
    wanted: Arc<Wanted>,
    word: oneshot::Sender<Held>,
}

/// A booking and who is to get it.
pub(super) type Delivery = (oneshot::Sender<Held>, Booking);

pub(super) struct Desk {
    pub(super) books: Books,
    queue: FairQueue<Waiter>,
    tenants: HashMap<Arc<str>, TenantId>,
    next_waiter: u64,
    recent: VecDeque<Arc<Chosen>>,
    decisions_kept: usize,
}

impl Desk {
    pub(super) fn new(books: Books, queue: QueueLimits, decisions_kept: usize) -> Self {
        Self {
            books,
            queue: FairQueue::new(queue),
            tenants: HashMap::new(),
            next_waiter: 0,
            recent: VecDeque::with_capacity(decisions_kept),
            decisions_kept,
        }
    }

    /// A request asks for a worker.
    pub(super) fn ask(
        &mut self,
        fleet: &Snapshot,
        wanted: &Arc<Wanted>,
        latest: Duration,
        now: Now,
    ) -> Answer {
        self.books.catch_up(fleet, now);
        let weighed = self.books.weigh(fleet, wanted, now);
        match self.verdict(wanted, &weighed.pressure(), now) {
            Verdict::Admit => match self.books.book(wanted, weighed, Duration::ZERO, now) {
                Some(booking) => {
                    self.note(&booking);
                    Answer::Booked(booking)
                }
                None => Answer::Refused(self.books.nobody()),
            },
            Verdict::Wait { deadline, .. } => {
                let cost_tokens = weighed.least_demand();
                self.wait(wanted, cost_tokens, deadline.min(latest), now)
            }
            Verdict::Refuse(refusal) => Answer::Refused(refusal),
        }
    }

    /// What would become of a request, and where it would go if there were room.
    pub(super) fn judge(
        &self,
        fleet: &Snapshot,
        wanted: &Wanted,
        now: Now,
    ) -> (Verdict, Pressure, Option<Decision>) {
        let weighed = self.books.weigh(fleet, wanted, now);
        let pressure = weighed.pressure();
        let verdict = self.verdict(wanted, &pressure, now);
        (verdict, pressure, self.books.decide(&weighed))
    }

    fn verdict(&self, wanted: &Wanted, pressure: &Pressure, now: Now) -> Verdict {
        let priority = wanted.priority_at_the_door();
        admit(
            priority,
            pressure,
            self.queue.tokens_ahead_of(priority),
            &self.books.drain,
            &self.books.rules,
            now.since_start,
        )
    }

    fn wait(
        &mut self,
        wanted: &Arc<Wanted>,
        cost_tokens: u64,
        deadline: Duration,
        now: Now,
    ) -> Answer {
        let (sender, word) = oneshot::channel();
        let number = self.next_waiter;
        self.next_waiter += 1;
        let waiting = Waiting {
            tenant: self.tenant(&wanted.tenant),
            priority: wanted.priority_at_the_door(),
            cost_tokens,
            deadline,
            item: Waiter {
                number,
                since: now.since_start,
                wanted: Arc::clone(wanted),
                word: sender,
            },
        };
        match self.queue.push(waiting) {
            Ok(()) => Answer::Wait {
                number,
                word,
                deadline,
            },
            Err((full, _)) => {
                let ahead = self.queue.tokens_ahead_of(wanted.priority);
                match turned_away(full, ahead, &self.books.drain, now.since_start) {
                    Verdict::Refuse(refusal) => Answer::Refused(refusal),
                    Verdict::Admit | Verdict::Wait { .. } => Answer::Refused(self.books.nobody()),
                }
            }
        }
    }

    /// Books workers for those first in line, as far as there is room.
    pub(super) fn serve_waiting(&mut self, fleet: &Snapshot, now: Now) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        if self.queue.is_empty() {
            return deliveries;
        }
        self.books.catch_up(fleet, now);
        loop {
            let books = &self.books;
            let has_room = |first: &Waiting<Waiter>| {
                let pressure = books.weigh(fleet, &first.item.wanted, now).pressure();
                pressure.workers > 0 && pressure.missing_tokens == 0
            };
            let Some(Waiting { item: waiter, .. }) = self.queue.pop(has_room) else {
                return deliveries;
            };
            let weighed = self.books.weigh(fleet, &waiter.wanted, now);
            let waited = now.since_start.saturating_sub(waiter.since);
            // There was a worker a moment ago, under this very lock. If not, dropping the waiter tells it.
            if let Some(booking) = self.books.book(&waiter.wanted, weighed, waited, now) {
                self.note(&booking);
                deliveries.push((waiter.word, booking));
            }
        }
    }

    /// Takes someone out of the line who waits no more.
    pub(super) fn leave(&mut self, number: u64) {
        self.queue.remove_if(|waiter| waiter.number == number);
    }

    /// When someone refused now should try again.
    pub(super) fn retry_after(&self, wanted: &Wanted, now: Now) -> Duration {
        let ahead = self.queue.tokens_ahead_of(wanted.priority);
        let own = wanted.prompt.tokens;
        self.books
            .drain
            .retry_after(ahead.saturating_add(own), now.since_start)
    }

    pub(super) fn waiting(&self) -> (usize, u64) {
        (self.queue.len(), self.queue.tokens())
    }

    /// The last decisions, newest first.
    pub(super) fn recent(&self) -> impl Iterator<Item = &Arc<Chosen>> {
        self.recent.iter().rev()
    }

    /// A worker has left the fleet.
    pub(super) fn gone(&mut self, worker: WorkerId) {
        self.books.gone(worker);
    }

    fn note(&mut self, booking: &Booking) {
        if self.decisions_kept == 0 {
            return;
        }
        if self.recent.len() >= self.decisions_kept {
            self.recent.pop_front();
        }
        self.recent.push_back(Arc::clone(&booking.chosen));
    }

    /// A tenant's number in the line; handed out when it first waits.
    fn tenant(&mut self, name: &Arc<str>) -> TenantId {
        let next = TenantId(u32::try_from(self.tenants.len()).unwrap_or(u32::MAX));
        *self.tenants.entry(Arc::clone(name)).or_insert(next)
    }
}
