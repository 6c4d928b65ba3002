//! What a tenant has used of its limits.
//!
//! A request enters before its body is read: it counts as one request and one at a time. When its size is known,
//! tokens are reserved, and when it ends, what it really used is settled. Dropping the [`Pass`] does the rest, so
//! that no way of ending a request can forget it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use protocol::{ApiError, ErrorKind};
use replicas::{Amount, Elsewhere};

use super::bucket::{Allowance, Bucket};
use super::tenant::Limits;

/// What a refusal is called, for programs.
const CODE: &str = "rate_limit_exceeded";

/// When a request over the number at a time may try again. Nobody knows when one of the others ends.
const RETRY_CONCURRENT: Duration = Duration::from_secs(1);

/// What a tenant has used. Survives a new configuration.
#[derive(Debug)]
pub(super) struct Meter(Mutex<Used>);

#[derive(Debug)]
struct Used {
    requests: Bucket,
    tokens: Bucket,
    running: u32,
    /// Requests that run at other gateways.
    running_elsewhere: u32,
}

/// What a tenant has used here, for other gateways to know.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Told {
    pub(crate) requests: Amount,
    pub(crate) tokens: Amount,
    pub(crate) running: u32,
}

/// What is left to a tenant, where it has a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowances {
    /// Of requests.
    pub requests: Option<Allowance>,
    /// Of tokens.
    pub tokens: Option<Allowance>,
}

impl Meter {
    pub(super) fn new(now: Instant) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Used {
            requests: Bucket::new(now),
            tokens: Bucket::new(now),
            running: 0,
            running_elsewhere: 0,
        })))
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn running(&self) -> u32 {
        self.used().running
    }

    pub(super) fn allowances(&self, limits: &Limits, now: Instant) -> Allowances {
        let mut used = self.used();
        let requests = limits.requests_per_minute.map(u64::from);
        Allowances {
            requests: requests.map(|limit| used.requests.allowance(limit, now)),
            tokens: limits
                .tokens_per_minute
                .map(|limit| used.tokens.allowance(limit, now)),
        }
    }

    /// What other gateways are told; `None` if there is nothing to tell.
    pub(super) fn told(&self, limits: &Limits, now: Instant) -> Option<Told> {
        let mut used = self.used();
        let Used {
            requests, tokens, ..
        } = &mut *used;
        let amount = |bucket: &mut Bucket, limit: Option<u64>| Amount {
            total: bucket.total(),
            level: limit.map_or(0.0, |limit| bucket.level(limit, now)),
        };
        let told = Told {
            requests: amount(requests, limits.requests_per_minute.map(u64::from)),
            tokens: amount(tokens, limits.tokens_per_minute),
            running: used.running,
        };
        let is_idle = told.running == 0 && told.requests.total == 0.0 && told.tokens.total == 0.0;
        (*limits != Limits::default() && !is_idle).then_some(told)
    }

    /// Takes in what was used at other gateways, so many.
    pub(super) fn heard(
        &self,
        limits: &Limits,
        elsewhere: &Elsewhere,
        others: usize,
        now: Instant,
    ) {
        let mut used = self.used();
        if let Some(limit) = limits.requests_per_minute {
            let (spent, level) = (elsewhere.requests, elsewhere.requests_level);
            used.requests
                .turn(u64::from(limit), spent, level, others, now);
        }
        if let Some(limit) = limits.tokens_per_minute {
            let (spent, level) = (elsewhere.tokens, elsewhere.tokens_level);
            used.tokens.turn(limit, spent, level, others, now);
        }
        used.running_elsewhere = elsewhere.running;
    }

    /// Lets a request in, if the limits allow one more.
    pub(super) fn enter(self: &Arc<Self>, limits: &Limits, now: Instant) -> Result<Pass, ApiError> {
        let mut used = self.used();
        if let Some(limit) = limits.concurrent
            && used.running.saturating_add(used.running_elsewhere) >= limit
        {
            return Err(refuse(
                format!("{limit} requests at a time are allowed, and as many are running"),
                RETRY_CONCURRENT,
            ));
        }
        // Nothing of the request's size is known yet; but who is in debt need not send it.
        if let Some(limit) = limits.tokens_per_minute {
            let taken = used.tokens.take(limit, 0, now);
            taken.map_err(|wait| {
                refuse(format!("the {limit} tokens per minute are used up"), wait)
            })?;
        }
        if let Some(limit) = limits.requests_per_minute {
            let taken = used.requests.take(u64::from(limit), 1, now);
            taken.map_err(|wait| {
                refuse(format!("the {limit} requests per minute are used up"), wait)
            })?;
        }
        used.running += 1;
        Ok(Pass {
            meter: Arc::clone(self),
            tokens_per_minute: limits.tokens_per_minute,
            reserved: 0,
        })
    }
}

fn refuse(why: String, wait: Duration) -> ApiError {
    ApiError::new(ErrorKind::Overloaded, why)
        .with_code(CODE)
        .retry_after(wait)
}

/// A request that was let in. Counts as running until dropped; tokens that were reserved and not settled by then
/// were not used.
#[derive(Debug)]
pub struct Pass {
    meter: Arc<Meter>,
    tokens_per_minute: Option<u64>,
    reserved: u64,
}

impl Pass {
    /// Sets tokens aside: those of the prompt, and those of the answer as far as the request says.
    ///
    /// # Errors
    /// If they are not left, or never could be.
    pub fn reserve(&mut self, tokens: u64, now: Instant) -> Result<(), ApiError> {
        let Some(limit) = self.tokens_per_minute else {
            return Ok(());
        };
        if tokens > limit {
            return Err(ApiError::new(
                ErrorKind::InvalidRequest,
                format!(
                    "the request may take {tokens} tokens, more than the {limit} allowed per minute; \
                     shorten it or lower max_tokens"
                ),
            )
            .with_code(CODE));
        }
        let taken = self.meter.used().tokens.take(limit, tokens, now);
        taken.map_err(|wait| {
            refuse(
                format!("{tokens} of the {limit} tokens per minute are not left now"),
                wait,
            )
        })?;
        self.reserved += tokens;
        Ok(())
    }

    /// Puts what was used in the place of what was reserved.
    pub fn settle(&mut self, used: u64, now: Instant) {
        if let Some(limit) = self.tokens_per_minute {
            let reserved = std::mem::take(&mut self.reserved);
            self.meter.used().tokens.settle(limit, reserved, used, now);
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.reserved > 0 {
            self.settle(0, Instant::now());
        }
        let mut used = self.meter.used();
        debug_assert!(used.running > 0, "more requests ended than began");
        used.running = used.running.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(requests: Option<u32>, tokens: Option<u64>, concurrent: Option<u32>) -> Limits {
        Limits {
            requests_per_minute: requests,
            tokens_per_minute: tokens,
            concurrent,
        }
    }

    fn retry(error: &ApiError) -> (u16, Option<u64>) {
        (error.kind().status(), error.retry_after_seconds())
    }

    #[test]
    fn requests_over_the_rate_are_told_when_to_come_back() {
        let now = Instant::now();
        let meter = Meter::new(now);
        let limits = limits(Some(2), None, None);
        drop(meter.enter(&limits, now).unwrap());
        drop(meter.enter(&limits, now).unwrap());
        assert_eq!(
            retry(&meter.enter(&limits, now).unwrap_err()),
            (429, Some(30))
        );
        assert!(meter.enter(&limits, now + Duration::from_secs(31)).is_ok());
    }

    #[test]
    fn a_place_is_free_when_its_request_has_ended() {
        let now = Instant::now();
        let meter = Meter::new(now);
        let limits = limits(None, None, Some(1));
        let pass = meter.enter(&limits, now).unwrap();
        assert_eq!(
            retry(&meter.enter(&limits, now).unwrap_err()),
            (429, Some(1))
        );
        drop(pass);
        assert!(meter.enter(&limits, now).is_ok());
        assert_eq!(meter.running(), 0);
    }

    #[test]
    fn a_refused_request_costs_nothing() {
        let now = Instant::now();
        let meter = Meter::new(now);
        let limits = limits(Some(5), Some(100), Some(1));
        let pass = meter.enter(&limits, now).unwrap();
        for _ in 0..10 {
            assert!(meter.enter(&limits, now).is_err());
        }
        let left = meter.allowances(&limits, now);
        assert_eq!(left.requests.unwrap().remaining, 4);
        drop(pass);
    }

    #[test]
    fn tokens_are_reserved_and_settled() {
        let now = Instant::now();
        let meter = Meter::new(now);
        let limits = limits(None, Some(600), None);
        let mut pass = meter.enter(&limits, now).unwrap();
        pass.reserve(500, now).unwrap();
        let mut other = meter.enter(&limits, now).unwrap();
        assert_eq!(
            retry(&other.reserve(200, now).unwrap_err()),
            (429, Some(10))
        );
        pass.settle(100, now);
        other.reserve(200, now).unwrap();
        let remaining = || meter.allowances(&limits, now).tokens.unwrap().remaining;
        assert_eq!(remaining(), 300);
        drop(pass);
        assert_eq!(remaining(), 300);
        drop(other);
        assert_eq!(remaining(), 500);
    }

    #[test]
    fn who_is_in_debt_does_not_get_in() {
        let now = Instant::now();
        let meter = Meter::new(now);
        let limits = limits(None, Some(60), None);
        let mut pass = meter.enter(&limits, now).unwrap();
        pass.settle(90, now);
        assert_eq!(
            retry(&meter.enter(&limits, now).unwrap_err()),
            (429, Some(30))
        );
    }

    #[test]
    fn what_can_never_fit_is_not_told_to_come_back() {
        let now = Instant::now();
        let meter = Meter::new(now);
        let mut pass = meter.enter(&limits(None, Some(60), None), now).unwrap();
        assert_eq!(retry(&pass.reserve(61, now).unwrap_err()), (400, None));
    }

    #[test]
    fn what_runs_and_was_used_elsewhere_counts_here() {
        let now = Instant::now();
        let meter = Meter::new(now);
        let limits = limits(Some(10), Some(1000), Some(2));
        assert_eq!(meter.told(&limits, now), None);
        let elsewhere = Elsewhere {
            requests: 9.0,
            running: 1,
            ..Elsewhere::default()
        };
        meter.heard(&limits, &elsewhere, 1, now);
        let pass = meter.enter(&limits, now).unwrap();
        let told = meter.told(&limits, now).unwrap();
        assert_eq!((told.requests.total, told.requests.level), (1.0, 10.0));
        assert_eq!(retry(&meter.enter(&limits, now).unwrap_err()).0, 429);
        drop(pass);
        // Alone again, and a minute later, nothing of it is left.
        let later = now + Duration::from_secs(60);
        meter.heard(&limits, &Elsewhere::default(), 0, later);
        let passes: Vec<_> = (0..2)
            .map(|_| meter.enter(&limits, later).unwrap())
            .collect();
        assert_eq!(passes.len(), 2);
    }

    #[test]
    fn without_limits_everything_goes() {
        let now = Instant::now();
        let meter = Meter::new(now);
        let mut pass = meter.enter(&Limits::default(), now).unwrap();
        pass.reserve(u64::MAX, now).unwrap();
        pass.settle(u64::MAX, now);
        assert_eq!(meter.running(), 1);
    }
}
