//! Whether a worker can be given work, from what it answers, what it prints and what requests meet.
//!
//! ```text
//! Starting ──alive──► Up ──unreachable ×2, unready or silent ×2──► Down ──alive ×2──► Up (slow start)
//!                      ├─ asleep      its engine says so
//!                      ├─ wedged      requests are running, and its counters stand still
//!                      └─ stale       it answers, but its metrics do not come
//! Draining, whatever else: it takes nothing new
//! ```
//!
//! A dead process refuses connections: two refusals in a row are enough, from probes or from requests,
//! and the first one calls for a probe at once, so that a worker is out well within two seconds of its
//! death. A worker that accepts and stays silent may only be busy, so silence counts more slowly; requests
//! that time out or fail are for the [`breaker`](crate::breaker) to judge, and each fact counts once.
//!
//! The machine has no clock: every call says what time it is, and [`Health::condition`] follows from the
//! facts and the time alone.

mod config;
mod drain;
mod progress;
mod standing;
mod weight;

pub use config::HealthConfig;
pub use drain::{DrainReason, Draining};
pub use standing::{Candidate, PANIC_WEIGHT, PanicConfig, Standing, TRIAL_WEIGHT, standings};

use std::time::Instant;

use crate::observe::{Observation, SleepState};
use progress::Progress;

/// A fact about a worker's reachability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// It answered a probe or a request.
    Alive,
    /// It answered a probe with a 5xx: starting, or its engine is gone.
    Unready,
    /// No connection: refused, no route, or no answer to the handshake.
    Unreachable,
    /// A connection broke without an answer.
    Reset,
    /// It accepted a probe's connection and did not answer in time.
    Silent,
}

/// Why a worker is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DownReason {
    /// Nobody is at its address.
    Unreachable,
    /// It says it cannot serve.
    Unready,
    /// It accepts connections and does not answer.
    Silent,
}

/// How a worker is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Condition {
    /// Not heard of yet.
    Starting,
    /// Fit for work; less than all of it while it warms up.
    Healthy {
        /// Share of its fair share of work, over 0 and up to 1.
        weight: f64,
    },
    /// Requests are running and nothing moves.
    Wedged,
    /// It answers, but how full it is nobody knows.
    Stale,
    /// Its engine sleeps.
    Asleep,
    /// Out.
    Down(DownReason),
    /// On its way out: takes nothing new.
    Draining(DrainReason),
}

impl Condition {
    /// One word, for labels and logs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Healthy { .. } => "healthy",
            Self::Wedged => "wedged",
            Self::Stale => "stale",
            Self::Asleep => "asleep",
            Self::Down(DownReason::Unreachable) => "unreachable",
            Self::Down(DownReason::Unready) => "unready",
            Self::Down(DownReason::Silent) => "silent",
            Self::Draining(_) => "draining",
        }
    }

    /// Whether it may be given work in the ordinary course.
    pub fn is_healthy(&self) -> bool {
        matches!(self, Self::Healthy { .. })
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Reach {
    Starting,
    Up { since: Instant },
    Down(DownReason),
}

/// The health of one worker.
#[derive(Debug, Clone)]
pub struct Health {
    config: HealthConfig,
    reach: Reach,
    unreachable_in_a_row: u32,
    failed_in_a_row: u32,
    alive_in_a_row: u32,
    /// When the last good metrics page came; `None` for a worker that has none to give.
    metrics: Option<Instant>,
    progress: Progress,
    asleep: bool,
    draining: Option<Draining>,
    last_alive: Option<Instant>,
}

impl Health {
    /// A worker not heard of yet.
    pub fn new(config: HealthConfig) -> Self {
        Self {
            config,
            reach: Reach::Starting,
            unreachable_in_a_row: 0,
            failed_in_a_row: 0,
            alive_in_a_row: 0,
            metrics: None,
            progress: Progress::default(),
            asleep: false,
            draining: None,
            last_alive: None,
        }
    }

    /// When it last answered.
    pub fn last_alive(&self) -> Option<Instant> {
        self.last_alive
    }

    /// Takes in a fact. True if it is worth probing at once instead of waiting for the next turn.
    pub fn signal(&mut self, signal: Signal, now: Instant) -> bool {
        match signal {
            Signal::Alive => {
                self.last_alive = Some(now);
                self.unreachable_in_a_row = 0;
                self.failed_in_a_row = 0;
                self.alive_in_a_row = self.alive_in_a_row.saturating_add(1);
                let needed = match self.reach {
                    Reach::Starting => 1,
                    Reach::Up { .. } => return false,
                    Reach::Down(_) => self.config.alive_to_rise,
                };
                if self.alive_in_a_row < needed {
                    return true;
                }
                self.rise(now);
                false
            }
            Signal::Unreachable | Signal::Reset => {
                self.alive_in_a_row = 0;
                self.unreachable_in_a_row = self.unreachable_in_a_row.saturating_add(1);
                if self.unreachable_in_a_row >= self.config.unreachable_to_fall {
                    self.fall(DownReason::Unreachable);
                    return false;
                }
                self.is_up()
            }
            Signal::Unready => self.failed(DownReason::Unready),
            Signal::Silent => self.failed(DownReason::Silent),
        }
    }

    /// Takes in a metrics page.
    pub fn observed(&mut self, observation: &Observation, now: Instant) {
        self.metrics = Some(now);
        self.asleep = observation
            .sleep
            .is_some_and(|state| state > SleepState::Awake);
        self.progress.observed(observation, now);
    }

    /// Takes in that a stream of this worker moved: it is not wedged, whatever its counters say.
    pub fn moved(&mut self, now: Instant) {
        self.progress.moved(now);
    }

    /// No metrics are to be had from this worker: their absence is no sign of illness.
    pub fn has_no_metrics(&mut self) {
        self.metrics = None;
        self.progress = Progress::default();
        self.asleep = false;
    }

    /// Lets it finish what it has and gives it nothing new. A later, more pressing reason replaces an
    /// earlier one; the time already waited counts.
    pub fn drain(&mut self, reason: DrainReason, now: Instant) {
        let since = self.draining.map_or(now, |draining| draining.since);
        self.draining = Some(Draining { reason, since });
    }

    /// Takes a drained worker back. It warms up again: its caches may be cold.
    pub fn undrain(&mut self, now: Instant) {
        if self.draining.take().is_some() && self.is_up() {
            self.reach = Reach::Up { since: now };
        }
    }

    /// Whether it is draining, why and since when.
    pub fn draining(&self) -> Option<Draining> {
        self.draining
    }

    /// How it is.
    pub fn condition(&self, now: Instant) -> Condition {
        match self.draining {
            Some(draining) => Condition::Draining(draining.reason),
            None => self.underlying(now),
        }
    }

    /// How it would be if it were not draining.
    pub fn underlying(&self, now: Instant) -> Condition {
        let since = match self.reach {
            Reach::Starting => return Condition::Starting,
            Reach::Down(reason) => return Condition::Down(reason),
            Reach::Up { since } => since,
        };
        if self.asleep {
            return Condition::Asleep;
        }
        let age = self
            .metrics
            .map(|metrics| now.saturating_duration_since(metrics));
        if age.is_some_and(|age| age >= self.config.stale_after) {
            return Condition::Stale;
        }
        if self.is_wedged(now) {
            return Condition::Wedged;
        }
        let up_for = now.saturating_duration_since(since);
        Condition::Healthy {
            weight: weight::slow_start(up_for, &self.config),
        }
    }

    /// Whether requests are running and nothing has moved for too long, draining or not.
    pub fn is_wedged(&self, now: Instant) -> bool {
        self.progress
            .standstill(now)
            .is_some_and(|standstill| standstill >= self.config.wedged_after)
    }

    fn is_up(&self) -> bool {
        matches!(self.reach, Reach::Up { .. })
    }

    fn failed(&mut self, reason: DownReason) -> bool {
        self.alive_in_a_row = 0;
        // It answered the handshake, so somebody is there.
        self.unreachable_in_a_row = 0;
        self.failed_in_a_row = self.failed_in_a_row.saturating_add(1);
        if self.failed_in_a_row >= self.config.failures_to_fall {
            self.fall(reason);
            return false;
        }
        self.is_up()
    }

    fn rise(&mut self, now: Instant) {
        self.reach = Reach::Up { since: now };
        self.progress = Progress::default();
        if self.metrics.is_some() {
            // Give the first page after an absence its time to come.
            self.metrics = Some(now);
        }
    }

    fn fall(&mut self, reason: DownReason) {
        self.reach = Reach::Down(reason);
    }
}

#[cfg(test)]
mod tests;
