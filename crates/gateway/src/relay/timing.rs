//! Time-outs that belong together.
//!
//! ```text
//! connect      a handshake takes a round trip, whatever the load
//! first byte   of a stream: queue and prefill at the worker
//! between      two pieces of a stream
//! total        first byte + max tokens x (slowest time per token x slack) + buffer, within bounds
//! ```
//! The total follows from what was asked for and how slow the worker is known to be: a long answer from a
//! slow worker is not cut off, and a short one cannot hold a place for an hour. An answer in one piece has
//! only the total: its first byte comes last.
//!
//! Beside the clock there is the fleet: whoever waits for a worker that the fleet has found dead or stuck
//! stops waiting within [`TICK`], not at the end of a time-out. A worker that is merely silent or stuck is given up only for another
//! that is fit: the last one left may be slow rather than dead, and nobody could do its work.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fleet::health::{Condition, DownReason};
use fleet::{Fault, Worker};
use tokio::time::{Instant, Sleep};

use super::wire::Broken;
use crate::catalog::FleetModel;
use crate::placement::Pool;

/// How often those who wait look at clock and fleet. One timer per stream that is set once a second
/// costs nothing; one that is set for every piece does.
const TICK: Duration = Duration::from_secs(1);

/// A worker that the fleet thinks dead is given up only if it was silent for so long itself: where pieces
/// still come, the fleet is wrong.
const SILENT_BEFORE_GIVEN_UP: Duration = Duration::from_secs(2);

/// How much slower than measured a worker may become while it answers.
const SLACK: f64 = 4.0;

/// How long to wait for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayTimeouts {
    /// For a connection.
    pub connect: Duration,
    /// For the first piece of a stream.
    pub first_byte: Duration,
    /// Between two pieces.
    pub between: Duration,
    /// What every answer may take on top of its tokens' time.
    pub buffer: Duration,
    /// No answer is given less.
    pub shortest_total: Duration,
    /// None is given more.
    pub longest_total: Duration,
}

impl Default for RelayTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            first_byte: Duration::from_secs(120),
            between: Duration::from_secs(60),
            buffer: Duration::from_secs(30),
            shortest_total: Duration::from_secs(60),
            longest_total: Duration::from_secs(3600),
        }
    }
}

impl RelayTimeouts {
    /// What an answer of `max_tokens` may take where a token takes `inter_token`.
    pub fn total(&self, max_tokens: Option<u64>, inter_token: Duration) -> Duration {
        let longest = self.longest_total.max(self.shortest_total);
        let Some(tokens) = max_tokens else {
            return longest;
        };
        let speaking = inter_token.as_secs_f64() * SLACK * tokens as f64;
        let speaking = Duration::try_from_secs_f64(speaking).unwrap_or(longest);
        self.first_byte
            .saturating_add(speaking)
            .saturating_add(self.buffer)
            .clamp(self.shortest_total, longest)
    }
}

/// Time per token as the worker's metrics show it, or what is assumed of one that shows none.
pub(super) fn inter_token(worker: &Worker) -> Duration {
    worker
        .sighting()
        .and_then(|seen| seen.smoothed.itl_seconds)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .unwrap_or(routing::ASSUMED_INTER_TOKEN)
}

/// Why an answer is not waited for any longer.
#[derive(Debug)]
pub(super) enum Lost {
    /// The worker failed.
    Fault(Broken),
    /// All the time that the request had is over.
    Deadline,
}

/// Watches over one answer.
pub(super) struct Watch {
    worker: Arc<Worker>,
    pool: Arc<Pool>,
    tick: Pin<Box<Sleep>>,
    /// When the worker was last heard, or asked.
    heard: Instant,
    /// How long it may be silent now.
    patience: Duration,
    between: Duration,
    end: Instant,
    /// When we last looked. A client that takes nothing keeps us from looking, which is not the worker's
    /// silence.
    looked: Instant,
}

impl Watch {
    /// Starts the clock of an attempt; `end` is the request's own.
    pub(super) fn new(
        model: &FleetModel,
        worker: &Arc<Worker>,
        is_stream: bool,
        end: Instant,
    ) -> Self {
        let now = Instant::now();
        let timeouts = &model.timeouts;
        let patience = if is_stream {
            timeouts.first_byte
        } else {
            end.saturating_duration_since(now)
        };
        Self {
            worker: Arc::clone(worker),
            pool: Arc::clone(&model.pool),
            tick: Box::pin(tokio::time::sleep_until(next_look(now, patience, now, end))),
            heard: now,
            patience,
            between: timeouts.between,
            end,
            looked: now,
        }
    }

    /// A piece came.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
        self.looked = now;
        self.patience = self.between;
    }

    /// Completes when waiting has become pointless.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Lost> {
        while self.tick.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if now.saturating_duration_since(self.looked) > 2 * TICK {
                self.heard = now;
            }
            self.looked = now;
            if let Some(lost) = self.judge(now) {
                return Poll::Ready(lost);
            }
            let next = next_look(self.heard, self.patience, now, self.end);
            self.tick.as_mut().reset(next);
        }
        Poll::Pending
    }

    fn judge(&self, now: Instant) -> Option<Lost> {
        if now >= self.end {
            return Some(Lost::Deadline);
        }
        let silent = now.saturating_duration_since(self.heard);
        if silent >= self.patience {
            let why = format!("nothing came for {} s", silent.as_secs());
            return Some(Lost::Fault(Broken::new(Fault::TimedOut, why)));
        }
        if silent >= SILENT_BEFORE_GIVEN_UP {
            let condition = self.worker.underlying_condition(now.into_std());
            let others = || self.pool.can_do_without(self.worker.id());
            if is_given_up(condition, others) {
                let why = format!("the worker is {}", condition.word());
                return Some(Lost::Fault(Broken::new(Fault::TimedOut, why)));
            }
        }
        None
    }
}

/// Whether a worker in this condition is not waited for; `others` tells whether there are any that are fit.
fn is_given_up(condition: Condition, others: impl FnOnce() -> bool) -> bool {
    match condition {
        // Nobody is at its address any more.
        Condition::Down(DownReason::Unreachable) => true,
        Condition::Down(DownReason::Unready | DownReason::Silent) | Condition::Wedged => others(),
        Condition::Starting
        | Condition::Healthy { .. }
        | Condition::Stale
        | Condition::Asleep
        | Condition::Draining(_) => false,
    }
}

fn next_look(heard: Instant, patience: Duration, now: Instant, end: Instant) -> Instant {
    let runs_out = heard.checked_add(patience).unwrap_or(end);
    (now + TICK)
        .min(runs_out)
        .min(end)
        .max(now + Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_worker_is_waited_for_unless_it_is_dead() {
        let silent = Condition::Down(DownReason::Silent);
        let dead = Condition::Down(DownReason::Unreachable);
        for condition in [silent, Condition::Wedged] {
            assert!(is_given_up(condition, || true));
            assert!(!is_given_up(condition, || false));
        }
        assert!(is_given_up(dead, || false));
        assert!(!is_given_up(Condition::Healthy { weight: 1.0 }, || true));
    }

    #[test]
    fn the_total_grows_with_what_was_asked_for_and_how_slow_the_worker_is() {
        let timeouts = RelayTimeouts::default();
        let total = |tokens, millis| timeouts.total(tokens, Duration::from_millis(millis));
        let quick = total(Some(100), 10);
        assert!(total(Some(1_000), 10) > quick && total(Some(100), 100) > quick);
        // The parts belong together: nothing that may still come is cut off by the total.
        assert!(quick >= timeouts.first_byte + timeouts.buffer);
        assert_eq!(total(Some(u64::MAX), 1_000), timeouts.longest_total);
        assert_eq!(total(None, 10), timeouts.longest_total);
    }
}
