//! A circuit breaker for one worker: requests that would only fail are not sent.
//!
//! ```text
//!            faults in a row, or a high share of faults
//!   Closed ─────────────────────────────────────────────► Open
//!     ▲                                                    │ its time is over
//!     │ enough trials answered, or a long quiet time       ▼
//!     └─────────────────────────────────────────────── HalfOpen ──► Open, twice as long
//!                                                          a trial hits a fault
//! ```
//!
//! Only a *worker's* faults count: no connection, a reset, a time-out, a 5xx. What a client did wrong (any
//! 4xx) or broke off says nothing against the worker, and a worker that says it is busy (503 with
//! `retry-after`) is not broken. Outcomes of requests sent before the last change of state are ignored:
//! the faults of one crash open the breaker once, not again when it is half open.

use std::time::{Duration, Instant};

/// Slices of the window over which the share of faults is taken.
const SLICES: usize = 10;

/// When a breaker opens and closes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BreakerConfig {
    /// Faults in a row that open it.
    pub faults_in_a_row: u32,
    /// Share of faults in the window that opens it.
    pub fault_share: f64,
    /// Requests in the window below which the share means nothing.
    pub fault_share_from: u32,
    /// The window.
    pub window: Duration,
    /// How long it stays open at first; doubles every time a trial fails.
    pub open_for: Duration,
    /// The longest it stays open.
    pub open_at_most: Duration,
    /// Requests let through at a time while half open.
    pub trials: u32,
    /// Answered trials that close it.
    pub trials_to_close: u32,
    /// Time without any fault after which a half-open breaker closes for want of traffic.
    pub quiet_close: Duration,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            faults_in_a_row: 5,
            fault_share: 0.5,
            fault_share_from: 20,
            window: Duration::from_secs(10),
            open_for: Duration::from_secs(2),
            open_at_most: Duration::from_secs(60),
            trials: 2,
            trials_to_close: 2,
            quiet_close: Duration::from_secs(30),
        }
    }
}

/// What became of a request, as far as the worker is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It answered, be it with a refusal that is the client's fault.
    Answered,
    /// It failed: no connection, reset, time-out, 5xx.
    Fault,
    /// Nothing can be learned: the client left, or the worker said it is busy.
    Neutral,
}

impl Outcome {
    /// What a status says about the worker.
    ///
    /// ```
    /// # use forespeak_fleet as fleet;
    /// use fleet::breaker::Outcome;
    ///
    /// assert_eq!(Outcome::of_status(200, false), Outcome::Answered);
    /// assert_eq!(Outcome::of_status(429, false), Outcome::Answered);
    /// assert_eq!(Outcome::of_status(503, true), Outcome::Neutral);
    /// assert_eq!(Outcome::of_status(500, false), Outcome::Fault);
    /// ```
    pub fn of_status(status: u16, has_retry_after: bool) -> Self {
        const NOT_IMPLEMENTED: u16 = 501;
        const UNAVAILABLE: u16 = 503;
        match status {
            NOT_IMPLEMENTED => Self::Answered,
            UNAVAILABLE if has_retry_after => Self::Neutral,
            500.. => Self::Fault,
            _ => Self::Answered,
        }
    }
}

/// Whether requests pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BreakerState {
    /// All.
    Closed,
    /// None.
    Open,
    /// A few at a time, to see.
    HalfOpen,
}

/// Leave to send one request. Hand it back with what became of the request.
#[derive(Debug)]
#[must_use = "a permit that is not settled blocks a half-open breaker"]
pub struct Permit {
    epoch: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slice {
    /// Which slice of time this is, counted from the breaker's birth.
    number: u64,
    requests: u32,
    faults: u32,
}

/// The breaker of one worker. Has no clock: every call says what time it is.
#[derive(Debug, Clone)]
pub struct Breaker {
    config: BreakerConfig,
    born: Instant,
    phase: Phase,
    /// Changes with every phase; outcomes of older epochs are stale.
    epoch: u64,
    faults_in_a_row: u32,
    slices: [Slice; SLICES],
    /// Times it opened since it was last closed.
    openings: u32,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    Closed,
    Open {
        until: Instant,
    },
    HalfOpen {
        since: Instant,
        out: u32,
        answered: u32,
    },
}

impl Breaker {
    /// A closed breaker.
    pub fn new(config: BreakerConfig, now: Instant) -> Self {
        Self {
            config,
            born: now,
            phase: Phase::Closed,
            epoch: 0,
            faults_in_a_row: 0,
            slices: [Slice::default(); SLICES],
            openings: 0,
        }
    }

    /// Where it stands.
    pub fn state(&self, now: Instant) -> BreakerState {
        match self.phase {
            Phase::Closed => BreakerState::Closed,
            Phase::Open { until } if now < until => BreakerState::Open,
            Phase::Open { until } if now < until + self.config.quiet_close => {
                BreakerState::HalfOpen
            }
            Phase::HalfOpen { since, out, .. }
                if out > 0 || now < since + self.config.quiet_close =>
            {
                BreakerState::HalfOpen
            }
            Phase::Open { .. } | Phase::HalfOpen { .. } => BreakerState::Closed,
        }
    }

    /// Whether a request would be let through.
    pub fn would_admit(&self, now: Instant) -> bool {
        match (self.state(now), self.phase) {
            (BreakerState::Closed, _) => true,
            (BreakerState::Open, _) => false,
            (BreakerState::HalfOpen, Phase::HalfOpen { out, .. }) => out < self.config.trials,
            (BreakerState::HalfOpen, _) => self.config.trials > 0,
        }
    }

    /// Leave to send a request, if there is any.
    pub fn admit(&mut self, now: Instant) -> Option<Permit> {
        self.catch_up(now);
        match &mut self.phase {
            Phase::Closed => {}
            Phase::Open { .. } => return None,
            Phase::HalfOpen { out, .. } if *out >= self.config.trials => return None,
            Phase::HalfOpen { out, .. } => *out += 1,
        }
        Some(Permit { epoch: self.epoch })
    }

    /// Takes in what became of a request. True if this opened the breaker.
    pub fn settle(&mut self, permit: Permit, outcome: Outcome, now: Instant) -> bool {
        if permit.epoch != self.epoch {
            return false;
        }
        let opens = match &mut self.phase {
            Phase::Closed => self.count(outcome, now),
            Phase::Open { .. } => false,
            Phase::HalfOpen { out, answered, .. } => {
                *out = out.saturating_sub(1);
                match outcome {
                    Outcome::Answered => {
                        *answered += 1;
                        if *answered >= self.config.trials_to_close {
                            self.close();
                        }
                        false
                    }
                    Outcome::Neutral => false,
                    Outcome::Fault => true,
                }
            }
        };
        if opens {
            self.open(now);
        }
        opens
    }

    /// Makes the passing of time a fact.
    fn catch_up(&mut self, now: Instant) {
        match (self.state(now), self.phase) {
            (BreakerState::Closed, Phase::Open { .. } | Phase::HalfOpen { .. }) => self.close(),
            (BreakerState::HalfOpen, Phase::Open { until }) => {
                self.enter(Phase::HalfOpen {
                    since: until,
                    out: 0,
                    answered: 0,
                });
            }
            _ => {}
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.epoch += 1;
    }

    fn close(&mut self) {
        self.enter(Phase::Closed);
        self.openings = 0;
        self.faults_in_a_row = 0;
        self.slices = [Slice::default(); SLICES];
    }

    fn open(&mut self, now: Instant) {
        let doubled = self
            .config
            .open_for
            .saturating_mul(1 << self.openings.min(16));
        let until = now + doubled.min(self.config.open_at_most.max(self.config.open_for));
        self.openings += 1;
        self.enter(Phase::Open { until });
    }

    /// Counts an outcome while closed. True if that is too much.
    fn count(&mut self, outcome: Outcome, now: Instant) -> bool {
        let fault = match outcome {
            Outcome::Neutral => return false,
            Outcome::Answered => false,
            Outcome::Fault => true,
        };
        self.faults_in_a_row = if fault { self.faults_in_a_row + 1 } else { 0 };
        let (requests, faults) = self.add_to_window(fault, now);
        if !fault {
            return false;
        }
        let share = f64::from(faults) / f64::from(requests.max(1));
        self.faults_in_a_row >= self.config.faults_in_a_row
            || requests >= self.config.fault_share_from && share >= self.config.fault_share
    }

    /// Requests and faults of the window, this one included.
    fn add_to_window(&mut self, fault: bool, now: Instant) -> (u32, u32) {
        let slice_millis = (self.config.window.as_millis() / SLICES as u128).max(1);
        let age = now.saturating_duration_since(self.born).as_millis();
        // Numbers start at 1, so that the zeroes of an unused slice are older than any window.
        let number = (age / slice_millis) as u64 + SLICES as u64;
        if let Some(slice) = self.slices.get_mut(number as usize % SLICES) {
            if slice.number != number {
                *slice = Slice {
                    number,
                    ..Slice::default()
                };
            }
            slice.requests += 1;
            slice.faults += u32::from(fault);
        }
        self.slices
            .iter()
            .filter(|slice| slice.number + SLICES as u64 > number)
            .fold((0, 0), |(requests, faults), slice| {
                (requests + slice.requests, faults + slice.faults)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn breaker() -> (Breaker, Instant) {
        let now = Instant::now();
        (Breaker::new(BreakerConfig::default(), now), now)
    }

    fn send(breaker: &mut Breaker, outcome: Outcome, now: Instant) -> bool {
        let permit = breaker.admit(now).expect("the breaker should admit");
        breaker.settle(permit, outcome, now)
    }

    fn opened() -> (Breaker, Instant) {
        let (mut breaker, now) = breaker();
        for _ in 0..5 {
            send(&mut breaker, Outcome::Fault, now);
        }
        assert_eq!(breaker.state(now), BreakerState::Open);
        (breaker, now)
    }

    #[test]
    fn a_4xx_never_opens_the_breaker() {
        let (mut breaker, now) = breaker();
        for status in 400..500 {
            for _ in 0..100 {
                assert!(!send(&mut breaker, Outcome::of_status(status, false), now));
            }
        }
        assert_eq!(breaker.state(now), BreakerState::Closed);
    }

    #[test]
    fn a_busy_worker_is_not_broken() {
        let (mut breaker, now) = breaker();
        for _ in 0..1000 {
            send(&mut breaker, Outcome::of_status(503, true), now);
        }
        assert_eq!(breaker.state(now), BreakerState::Closed);
    }

    #[test]
    fn faults_in_a_row_open_it() {
        let (breaker, now) = opened();
        assert!(!breaker.would_admit(now));
        assert!(breaker.clone().admit(now).is_none());
    }

    #[test]
    fn a_high_share_of_faults_opens_it_though_never_in_a_row() {
        let (mut breaker, now) = breaker();
        let mut requests = 0;
        while breaker.state(now) == BreakerState::Closed && requests < 100 {
            let outcome = if requests % 2 == 0 {
                Outcome::Answered
            } else {
                Outcome::Fault
            };
            send(&mut breaker, outcome, now);
            requests += 1;
        }
        assert_eq!(requests, 20);
    }

    #[test]
    fn faults_older_than_the_window_are_forgotten() {
        let (mut breaker, mut now) = breaker();
        for request in 0..200 {
            let outcome = if request % 2 == 0 {
                Outcome::Answered
            } else {
                Outcome::Fault
            };
            send(&mut breaker, outcome, now);
            now += Duration::from_secs(1);
        }
        assert_eq!(breaker.state(now), BreakerState::Closed);
    }

    #[test]
    fn half_open_lets_a_few_trials_through_and_closes_on_answers() {
        let (mut breaker, now) = opened();
        let now = now + Duration::from_secs(3);
        assert_eq!(breaker.state(now), BreakerState::HalfOpen);
        let first = breaker.admit(now).unwrap();
        let second = breaker.admit(now).unwrap();
        assert!(breaker.admit(now).is_none());
        breaker.settle(first, Outcome::Answered, now);
        assert_eq!(breaker.state(now), BreakerState::HalfOpen);
        breaker.settle(second, Outcome::Answered, now);
        assert_eq!(breaker.state(now), BreakerState::Closed);
    }

    #[test]
    fn a_trial_that_is_broken_off_gives_its_place_back() {
        let (mut breaker, now) = opened();
        let now = now + Duration::from_secs(3);
        for _ in 0..10 {
            assert!(!send(&mut breaker, Outcome::Neutral, now));
        }
        assert_eq!(breaker.state(now), BreakerState::HalfOpen);
    }

    #[test]
    fn a_failed_trial_opens_it_for_twice_as_long() {
        let (mut breaker, start) = opened();
        let mut now = start + Duration::from_secs(2);
        assert!(send(&mut breaker, Outcome::Fault, now));
        now += Duration::from_secs(3);
        assert_eq!(breaker.state(now), BreakerState::Open);
        now += Duration::from_secs(1);
        assert_eq!(breaker.state(now), BreakerState::HalfOpen);
    }

    #[test]
    fn late_faults_of_the_crash_that_opened_it_are_not_held_against_the_trials() {
        let (mut breaker, now) = breaker();
        let late = breaker.admit(now).unwrap();
        for _ in 0..5 {
            send(&mut breaker, Outcome::Fault, now);
        }
        let now = now + Duration::from_secs(3);
        let trial = breaker.admit(now).unwrap();
        assert!(!breaker.settle(late, Outcome::Fault, now));
        assert_eq!(breaker.state(now), BreakerState::HalfOpen);
        breaker.settle(trial, Outcome::Answered, now);
    }

    #[test]
    fn without_traffic_it_closes_after_a_quiet_time() {
        let (mut breaker, now) = opened();
        let now = now + Duration::from_secs(2 + 30);
        assert_eq!(breaker.state(now), BreakerState::Closed);
        assert!(breaker.admit(now).is_some());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Admit,
        Settle(usize, Outcome),
        Wait(u64),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let outcome = prop_oneof![
            Just(Outcome::Answered),
            Just(Outcome::Fault),
            Just(Outcome::Neutral)
        ];
        prop_oneof![
            4 => Just(Step::Admit),
            4 => (any::<usize>(), outcome).prop_map(|(which, outcome)| Step::Settle(which, outcome)),
            1 => (0_u64..20_000).prop_map(Step::Wait),
        ]
    }

    proptest! {
        #[test]
        fn whatever_happens_its_promises_hold(steps in proptest::collection::vec(any_step(), 0..300)) {
            let (mut breaker, mut now) = breaker();
            let mut permits: Vec<(Permit, BreakerState)> = Vec::new();
            let mut faults = 0;
            for step in steps {
                match step {
                    Step::Admit => {
                        let (state, would) = (breaker.state(now), breaker.would_admit(now));
                        let permit = breaker.admit(now);
                        prop_assert_eq!(permit.is_some(), would);
                        prop_assert!(state != BreakerState::Open || permit.is_none());
                        if let Some(permit) = permit {
                            permits.push((permit, breaker.state(now)));
                        }
                        let epoch = breaker.epoch;
                        let trials = permits
                            .iter()
                            .filter(|(p, s)| *s == BreakerState::HalfOpen && p.epoch == epoch)
                            .count();
                        prop_assert!(trials <= breaker.config.trials as usize);
                    }
                    Step::Settle(which, outcome) if !permits.is_empty() => {
                        let (permit, _) = permits.swap_remove(which % permits.len());
                        let opened = breaker.settle(permit, outcome, now);
                        prop_assert!(!opened || outcome == Outcome::Fault);
                        faults += u32::from(outcome == Outcome::Fault);
                    }
                    Step::Settle(..) => {}
                    Step::Wait(millis) => now += Duration::from_millis(millis),
                }
                prop_assert!(faults > 0 || breaker.state(now) == BreakerState::Closed);
            }
            for (permit, _) in permits.drain(..) {
                breaker.settle(permit, Outcome::Neutral, now);
            }
            now += Duration::from_secs(3600);
            prop_assert!(breaker.would_admit(now), "no breaker stays open for ever");
        }
    }
}
