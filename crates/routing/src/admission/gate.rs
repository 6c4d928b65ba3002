//! Whether a request may go now, may wait, or is refused before any worker is touched.
//!
//! ```text
//! usage   = claimed KV tokens / KV capacity, over the workers that could take the request
//! refused = usage > 0.85 for low priority, > 0.95 for normal (by default); high priority is never refused for usage
//! goes    = some worker has room for it and nobody of its priority or above waits
//! waits   = otherwise, if the time until it could go is within its patience (2 s low, 10 s normal, 60 s high)
//! ```
//!
//! "The time until it could go" is what waits ahead of it and what it lacks itself, divided by the rate at which
//! running requests give tokens back. The same number is the Retry-After of a refusal, so it is as honest as
//! that rate. While nothing was ever given back nobody knows, and a request waits as long as it may.

use std::time::Duration;

use serde::Serialize;

use super::drain::DrainRate;
use super::queue::QueueFull;
use crate::request::{Priority, RequestView};
use crate::worker::WorkerView;

/// The KV usage above which requests are refused. High priority never is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsageLimits {
    /// Those of low priority: the engine still has room to breathe.
    pub low: f64,
    /// Those of normal priority, too: beyond it engines begin to preempt.
    pub normal: f64,
}

impl Default for UsageLimits {
    fn default() -> Self {
        Self {
            low: 0.85,
            normal: 0.95,
        }
    }
}

/// How admission decides.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rules {
    /// How long each priority may wait.
    pub patience: Patience,
    /// Up to which usage each may go.
    pub limits: UsageLimits,
}

/// What may be decided about a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Verdict {
    /// Send it.
    Admit,
    /// Let it wait, until this time at the latest.
    Wait {
        /// When waiting becomes pointless.
        deadline: Duration,
        /// When it should go, as far as we know.
        expected: Duration,
    },
    /// Turn it away.
    Refuse(Refusal),
}

/// Why a request is turned away, and when to try again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refusal {
    /// Why.
    pub cause: RefusalCause,
    /// When trying again makes sense; `None` if never.
    pub retry_after: Option<Duration>,
}

/// Why a request is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCause {
    /// No worker may get traffic.
    NoWorkers,
    /// No worker could ever hold it.
    TooLarge,
    /// The caches are too full for its priority.
    Pressure,
    /// It would wait longer than its patience.
    TooLong,
    /// The waiting room is full.
    QueueFull,
    /// Its tenant has too many waiting.
    TenantQueueFull,
}

impl RefusalCause {
    /// The HTTP status that says so: 429 where the tenant itself is the cause, 400 where repeating it is
    /// pointless, 503 otherwise.
    pub fn status(self) -> u16 {
        match self {
            Self::TooLarge => 400,
            Self::TenantQueueFull => 429,
            Self::NoWorkers | Self::Pressure | Self::TooLong | Self::QueueFull => 503,
        }
    }
}

/// How long each priority may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Of low priority.
    pub low: Duration,
    /// Of normal priority.
    pub normal: Duration,
    /// Of high priority.
    pub high: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            low: Duration::from_secs(2),
            normal: Duration::from_secs(10),
            high: Duration::from_secs(60),
        }
    }
}

impl Patience {
    fn of(&self, priority: Priority) -> Duration {
        match priority {
            Priority::Low => self.low,
            Priority::Normal => self.normal,
            Priority::High => self.high,
        }
    }
}

/// The eligible workers' caches, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pressure {
    /// Workers that may get traffic.
    pub workers: usize,
    /// Share of their KV tokens that is claimed.
    pub usage: f64,
    /// What the request lacks on the worker that is closest to having room; 0 if it fits somewhere.
    pub missing_tokens: u64,
    /// Whether any of them could hold it when empty.
    pub could_ever_fit: bool,
}

impl Pressure {
    /// Of these workers, for this request. A worker of unknown capacity is taken to have room.
    pub fn of(request: &RequestView<'_>, workers: &[WorkerView]) -> Self {
        let eligible = || workers.iter().filter(|worker| worker.weight > 0.0);
        let capacity: u64 = eligible().map(|worker| worker.kv_capacity_tokens).sum();
        let free: u64 = eligible().map(WorkerView::kv_free_tokens).sum();
        let missing = |worker: &WorkerView| match worker.kv_capacity_tokens {
            0 => 0,
            _ => request
                .kv_demand(worker)
                .saturating_sub(worker.kv_free_tokens()),
        };
        Self {
            workers: eligible().count(),
            usage: if capacity == 0 {
                0.0
            } else {
                1.0 - free as f64 / capacity as f64
            },
            missing_tokens: eligible().map(missing).min().unwrap_or(0),
            could_ever_fit: eligible().any(|worker| {
                worker.kv_capacity_tokens == 0 || request.prompt_tokens < worker.kv_capacity_tokens
            }),
        }
    }
}

/// Decides about a request, given the caches, the tokens waiting ahead of it, and the rate of relief.
///
/// ```
/// use std::time::Duration;
/// use forespeak_routing::Priority;
/// use forespeak_routing::admission::{DrainRate, Pressure, RefusalCause, Rules, Verdict, admit};
///
/// let now = Duration::from_secs(100);
/// let busy = Pressure { workers: 8, usage: 0.90, missing_tokens: 0, could_ever_fit: true };
/// let verdict = |priority| admit(priority, &busy, 0, &DrainRate::default(), &Rules::default(), now);
/// assert_eq!(verdict(Priority::Normal), Verdict::Admit);
/// let Verdict::Refuse(refusal) = verdict(Priority::Low) else { panic!("low priority goes first") };
/// assert_eq!((refusal.cause, refusal.cause.status()), (RefusalCause::Pressure, 503));
/// ```
pub fn admit(
    priority: Priority,
    pressure: &Pressure,
    tokens_ahead: u64,
    drain: &DrainRate,
    rules: &Rules,
    now: Duration,
) -> Verdict {
    if pressure.workers == 0 {
        return refuse(RefusalCause::NoWorkers, Some(super::drain::MIN_RETRY));
    }
    if !pressure.could_ever_fit {
        return refuse(RefusalCause::TooLarge, None);
    }
    let missing = pressure.missing_tokens.saturating_add(tokens_ahead);
    let expected = drain.retry_after(missing, now);
    let over_limit = match priority {
        Priority::Low => pressure.usage > rules.limits.low,
        Priority::Normal => pressure.usage > rules.limits.normal,
        Priority::High => false,
    };
    if over_limit {
        return refuse(RefusalCause::Pressure, Some(expected));
    }
    if missing == 0 {
        return Verdict::Admit;
    }
    let patience = rules.patience.of(priority);
    if expected > patience && drain.is_known() && priority != Priority::High {
        return refuse(RefusalCause::TooLong, Some(expected));
    }
    Verdict::Wait {
        deadline: now + patience,
        expected: now + expected,
    }
}

/// The verdict on a request that was to wait but found no place.
pub fn turned_away(
    full: QueueFull,
    tokens_ahead: u64,
    drain: &DrainRate,
    now: Duration,
) -> Verdict {
    let cause = match full {
        QueueFull::Room => RefusalCause::QueueFull,
        QueueFull::Tenant => RefusalCause::TenantQueueFull,
    };
    refuse(cause, Some(drain.retry_after(tokens_ahead, now)))
}

fn refuse(cause: RefusalCause, retry_after: Option<Duration>) -> Verdict {
    Verdict::Refuse(Refusal { cause, retry_after })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Matches;
    use crate::worker::WorkerId;

    const NOW: Duration = Duration::from_secs(100);

    fn pressure(usage: f64, missing_tokens: u64) -> Pressure {
        Pressure {
            workers: 2,
            usage,
            missing_tokens,
            could_ever_fit: true,
        }
    }

    fn drain(tokens_per_second: u64) -> DrainRate {
        let mut drain = DrainRate::default();
        for second in 0..=100 {
            drain.settled(tokens_per_second, Duration::from_secs(second));
        }
        drain
    }

    fn verdict(priority: Priority, pressure: Pressure, ahead: u64) -> Verdict {
        admit(
            priority,
            &pressure,
            ahead,
            &drain(1_000),
            &Rules::default(),
            NOW,
        )
    }

    fn cause(verdict: Verdict) -> Option<RefusalCause> {
        match verdict {
            Verdict::Refuse(refusal) => Some(refusal.cause),
            _ => None,
        }
    }

    #[test]
    fn pressure_refuses_low_before_normal_and_high_never() {
        assert_eq!(verdict(Priority::Low, pressure(0.85, 0), 0), Verdict::Admit);
        assert_eq!(
            cause(verdict(Priority::Low, pressure(0.86, 0), 0)),
            Some(RefusalCause::Pressure)
        );
        assert_eq!(
            verdict(Priority::Normal, pressure(0.95, 0), 0),
            Verdict::Admit
        );
        assert_eq!(
            cause(verdict(Priority::Normal, pressure(0.96, 0), 0)),
            Some(RefusalCause::Pressure)
        );
        assert_eq!(
            verdict(Priority::High, pressure(0.99, 0), 0),
            Verdict::Admit
        );
    }

    #[test]
    fn the_limits_are_the_operators() {
        let rules = Rules {
            limits: UsageLimits {
                low: 0.2,
                normal: 0.3,
            },
            ..Rules::default()
        };
        let verdict = |priority, usage| {
            let pressure = pressure(usage, 0);
            cause(admit(priority, &pressure, 0, &drain(1), &rules, NOW))
        };
        assert_eq!(verdict(Priority::Low, 0.2), None);
        assert_eq!(verdict(Priority::Low, 0.25), Some(RefusalCause::Pressure));
        assert_eq!(
            verdict(Priority::Normal, 0.35),
            Some(RefusalCause::Pressure)
        );
        assert_eq!(verdict(Priority::High, 0.99), None);
    }

    #[test]
    fn nobody_overtakes_those_who_wait() {
        assert!(matches!(
            verdict(Priority::Normal, pressure(0.5, 0), 4_000),
            Verdict::Wait { .. }
        ));
    }

    #[test]
    fn who_would_wait_too_long_is_told_how_long() {
        let Verdict::Refuse(refusal) = verdict(Priority::Normal, pressure(0.5, 30_000), 0) else {
            panic!("30 s are beyond its patience");
        };
        assert_eq!(refusal.cause, RefusalCause::TooLong);
        let seconds = refusal.retry_after.unwrap().as_secs();
        assert!((25..=35).contains(&seconds), "{seconds} s");
        assert!(matches!(
            verdict(Priority::High, pressure(0.5, 30_000), 0),
            Verdict::Wait { .. }
        ));
    }

    #[test]
    fn before_anything_was_given_back_a_request_waits() {
        let unknown = DrainRate::default();
        let (rules, full) = (Rules::default(), pressure(0.5, 30_000));
        let verdict = admit(Priority::Normal, &full, 0, &unknown, &rules, NOW);
        assert!(matches!(verdict, Verdict::Wait { .. }), "{verdict:?}");
    }

    #[test]
    fn a_prompt_no_worker_can_hold_is_refused_for_good() {
        let never = Pressure {
            could_ever_fit: false,
            ..pressure(0.0, 0)
        };
        let Verdict::Refuse(refusal) = verdict(Priority::High, never, 0) else {
            panic!("it can never fit")
        };
        assert_eq!((refusal.cause.status(), refusal.retry_after), (400, None));
    }

    #[test]
    fn pressure_counts_what_was_sent_since_the_scrape() {
        let mut worker = WorkerView::idle(WorkerId(0), 1_000);
        worker.kv_usage = 0.5;
        worker.ledger.kv_tokens_since_scrape = 400;
        let request = RequestView {
            prompt_tokens: 100,
            expected_output_tokens: 50,
            matches: &Matches::default(),
            block_tokens: 16,
            priority: Priority::Normal,
            session: 0,
        };
        let pressure = Pressure::of(&request, &[worker]);
        assert!((pressure.usage - 0.9).abs() < 1e-9);
        assert_eq!(pressure.missing_tokens, 50);
    }
}
