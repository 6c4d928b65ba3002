//! A worker held for a request, from the decision to the end of its answer.

use std::sync::Arc;

use fleet::{Attempt, Worker};
use routing::decision::Reason;

use super::chosen::Chosen;
use super::claim::Claim;
use super::desk::Booking;
use super::outcome::{Outcome, Reported};
use super::shared::Shared;

/// How many more tokens are claimed for an answer that outgrew its claim: seldom enough to cost nothing.
const CLAIM_STEP_TOKENS: u64 = 1024;

/// What is given back when dropped, at the end of a stream or wherever it breaks off.
pub(super) struct Held {
    shared: Arc<Shared>,
    worker: Arc<Worker>,
    claim: Claim,
    predicted_cached: u64,
    chosen: Arc<Chosen>,
    attempt: Option<Attempt>,
}

impl Held {
    pub(super) fn new(shared: &Arc<Shared>, booking: Booking) -> Self {
        Self {
            shared: Arc::clone(shared),
            worker: booking.worker,
            claim: booking.claim,
            predicted_cached: booking.predicted_cached,
            chosen: booking.chosen,
            attempt: Some(booking.attempt),
        }
    }

    pub(super) fn reason(&self) -> &Reason {
        &self.chosen.decision.reason
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // The fleet counts the attempt as in flight: it ends before the books are closed, so that whoever
        // gets the room next finds the fleet ready.
        drop(self.attempt.take());
        self.shared.settle(self.claim);
    }
}

/// A worker held for a request. Dropping it gives everything back, as if the client had left.
#[must_use = "dropping a placement gives it back"]
pub struct Placement {
    held: Held,
    answers: u32,
    prompt_tokens: u64,
    started: bool,
}

impl std::fmt::Debug for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Placement({})", self.held.chosen.decision)
    }
}

impl Placement {
    pub(super) fn new(held: Held, answers: u32) -> Self {
        Self {
            prompt_tokens: held.chosen.prompt_tokens,
            held,
            answers,
            started: false,
        }
    }

    /// Where to send it.
    pub fn worker(&self) -> &Arc<Worker> {
        &self.held.worker
    }

    /// Which of its data-parallel ranks is to be named, if one is.
    pub fn rank(&self) -> Option<u16> {
        self.held.claim.rank
    }

    /// Why there.
    pub fn chosen(&self) -> &Arc<Chosen> {
        &self.held.chosen
    }

    /// Prompt tokens that the worker should find in its cache.
    pub fn predicted_cached(&self) -> u64 {
        self.held.predicted_cached
    }

    /// The head of the worker's answer came. Its breaker learns of the status at once; what goes wrong
    /// later is told by [`Self::settle`].
    pub fn answered(&mut self, status: http::StatusCode, has_retry_after: bool) {
        let now = self.held.shared.now().instant;
        if let Some(attempt) = &mut self.held.attempt {
            attempt.answered(status.as_u16(), has_retry_after, now);
        }
    }

    /// The first piece of the answer came: the prompt is computed. Later calls change nothing.
    pub fn started(&mut self) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        self.held.shared.first_token(self.held.claim);
    }

    /// The answer goes on; so many tokens have come in all. For now and then, not for every piece.
    pub fn progressed(&mut self, output_tokens: u64) {
        let now = self.held.shared.now().instant;
        if let Some(attempt) = &self.held.attempt {
            attempt.moved(now);
        }
        let holds = self.prompt_tokens.saturating_add(output_tokens);
        let claimed = &mut self.held.claim.claimed_tokens;
        if holds > *claimed {
            let more = holds - *claimed + CLAIM_STEP_TOKENS;
            *claimed += more;
            self.held.shared.claim_more(self.held.claim, more);
        }
    }

    /// The request is over.
    pub fn settle(mut self, outcome: Outcome) {
        let now = self.held.shared.now().instant;
        match outcome {
            Outcome::Finished(reported) => self.learn(reported),
            Outcome::WorkerFault(fault) => {
                if let Some(attempt) = &mut self.held.attempt {
                    attempt.failed(fault, now);
                }
            }
            Outcome::ClientFault(status) => {
                if let Some(attempt) = &mut self.held.attempt {
                    attempt.answered(status.as_u16(), false, now);
                }
            }
            Outcome::ClientLeft | Outcome::Deadline | Outcome::NotSent => {}
        }
    }

    fn learn(&mut self, reported: Reported) {
        let Held {
            shared,
            claim,
            predicted_cached,
            ..
        } = &self.held;
        shared.learn(*claim, *predicted_cached, self.answers, reported);
    }
}
