//! One request at a worker: what it says of the worker's health, and that it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Worker;
use crate::breaker::{Outcome, Permit};
use crate::health::Signal;

/// What a request met that is the worker's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No connection.
    Unreachable,
    /// The connection broke before or in the middle of the answer.
    Reset,
    /// Nothing came in time.
    TimedOut,
    /// A 5xx that does not say "busy".
    ServerError,
    /// An answer that is not HTTP or not what was asked for.
    Garbled,
}

/// A request on its way to a worker and back. Counts as in flight until dropped; dropped without a
/// verdict it was broken off by the client, which is held against nobody.
#[derive(Debug)]
pub struct Attempt {
    worker: Arc<Worker>,
    permit: Option<Permit>,
}

impl Attempt {
    /// Counts it in.
    pub(super) fn new(worker: Arc<Worker>, permit: Option<Permit>) -> Self {
        worker.in_flight.fetch_add(1, Ordering::AcqRel);
        Self { worker, permit }
    }

    /// The worker it goes to.
    pub fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    /// The worker answered with this status: head received, body still to come. The breaker learns of it
    /// at once; a fault later in the stream is told by [`Self::failed`].
    pub fn answered(&mut self, status: u16, has_retry_after: bool, now: Instant) {
        self.settle(Outcome::of_status(status, has_retry_after), now);
        // A 5xx proves a process, not a worker: it must not outvote probes that find the engine gone.
        if status < 500 {
            self.worker.signal(Signal::Alive, now);
        }
    }

    /// A piece of the stream came: the worker is not wedged. Cheap enough for now and then, too dear for
    /// every token.
    pub fn moved(&self, now: Instant) {
        self.worker.judgement().health.moved(now);
    }

    /// The worker failed the request.
    pub fn failed(&mut self, fault: Fault, now: Instant) {
        if self.permit.is_none() {
            // Settled when the head came, so this is a stream lost half-way: a fact of its own.
            self.permit = self.worker.judgement().breaker.admit(now);
        }
        self.settle(Outcome::Fault, now);
        let signal = match fault {
            Fault::Unreachable => Signal::Unreachable,
            Fault::Reset => Signal::Reset,
            Fault::TimedOut | Fault::ServerError | Fault::Garbled => return,
        };
        if self.worker.signal(signal, now) {
            self.worker.probe_now.notify_one();
        }
    }

    fn settle(&mut self, outcome: Outcome, now: Instant) {
        let Some(permit) = self.permit.take() else {
            return;
        };
        if self.worker.judgement().breaker.settle(permit, outcome, now) {
            tracing::warn!(worker = %self.worker.name(), "circuit breaker opened");
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.worker.in_flight.fetch_sub(1, Ordering::AcqRel);
        if let Some(permit) = self.permit.take() {
            let mut judgement = self.worker.judgement();
            judgement
                .breaker
                .settle(permit, Outcome::Neutral, Instant::now());
        }
    }
}
