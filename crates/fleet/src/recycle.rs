//! When a worker is better restarted: drained first, then handed to a hook that does it.
//!
//! Two things call for it. A *wedged* engine holds requests and gets nowhere. A *leaking* one holds more
//! KV cache than anybody asked for: `reported − claimed > drift·capacity` for a long time, where `claimed`
//! is the most that the requests we have open there can hold. As other gateways may use the same worker,
//! a leak is only believed while the worker reports no more requests than are ours.
//!
//! ```text
//! fit ──evidence for long enough──► draining ──empty, or out of patience──► hook ──► back, or given up
//! ```
//!
//! A recycler that errs would take a fleet down faster than any leak. So one worker at a time, a pause
//! between two, and never one whose absence would leave too few healthy ones.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use routing::WorkerId;

/// When a worker is recycled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecycleConfig {
    /// Unclaimed share of the KV cache that counts as a leak.
    pub drift: f64,
    /// How long a leak must last. Longer than any request that was just begun or just ended takes to
    /// show on both sides.
    pub drift_for: Duration,
    /// How long a standstill must last, on top of the time after which health calls it one.
    pub wedged_for: Duration,
    /// Pause between two recyclings.
    pub pause: Duration,
    /// Healthy workers that must remain.
    pub keep_healthy: usize,
    /// How long a draining worker may take to finish its requests. A wedged one never will.
    pub drain_at_most: Duration,
    /// Time after the hook from which a worker that never seemed away is believed to have been: before,
    /// it may be taken back only to be killed under its first requests.
    pub restart_unseen: Duration,
    /// How long it may take to come back after the hook.
    pub absent_at_most: Duration,
}

impl Default for RecycleConfig {
    fn default() -> Self {
        Self {
            drift: 0.2,
            drift_for: Duration::from_secs(60),
            wedged_for: Duration::from_secs(10),
            pause: Duration::from_secs(300),
            keep_healthy: 1,
            drain_at_most: Duration::from_secs(120),
            restart_unseen: Duration::from_secs(60),
            absent_at_most: Duration::from_secs(600),
        }
    }
}

/// Why a worker is recycled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecycleReason {
    /// It holds more KV cache than anybody asked for.
    Leaking,
    /// It holds requests and gets nowhere.
    Wedged,
}

/// What is known of one worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evidence {
    /// Which worker.
    pub worker: WorkerId,
    /// Whether it could work now, a drain set aside.
    pub fit: bool,
    /// Whether health finds it at a standstill.
    pub wedged: bool,
    /// Whether it is draining, on our word or somebody else's.
    pub draining: bool,
    /// KV tokens it reports in use; `None` while unknown.
    pub reported_tokens: Option<u64>,
    /// KV tokens it holds at most; `None` while unknown.
    pub capacity_tokens: Option<u64>,
    /// Requests it reports, running and waiting.
    pub reported_requests: u32,
    /// The most KV tokens that our open requests there can hold: prompts and outputs, cached or not.
    pub claimed_tokens: u64,
    /// Our open requests there.
    pub in_flight: u32,
}

impl Evidence {
    fn leaks(&self, config: &RecycleConfig) -> bool {
        let (Some(reported), Some(capacity)) = (self.reported_tokens, self.capacity_tokens) else {
            return false;
        };
        let unclaimed = reported.saturating_sub(self.claimed_tokens) as f64;
        self.reported_requests <= self.in_flight && unclaimed > config.drift * capacity as f64
    }
}

/// What the gateway is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Give the worker nothing new.
    Drain(WorkerId, RecycleReason),
    /// Call the hook that restarts it; it is as empty as it will get.
    CallHook(WorkerId, RecycleReason),
    /// It is back: take it into service.
    Readmit(WorkerId),
    /// It did not come back in time. It stays drained; somebody must look.
    GiveUp(WorkerId),
}

#[derive(Debug, Clone, Copy)]
struct Suspicion {
    reason: RecycleReason,
    since: Instant,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Draining { since: Instant },
    Hooked { since: Instant, was_away: bool },
}

#[derive(Debug, Clone, Copy)]
struct Recycling {
    worker: WorkerId,
    reason: RecycleReason,
    stage: Stage,
}

/// Decides whom to recycle. Has no clock and does nothing itself.
#[derive(Debug, Default)]
pub struct Recycler {
    config: RecycleConfig,
    suspicions: HashMap<WorkerId, Suspicion>,
    current: Option<Recycling>,
    last_begun: Option<Instant>,
}

impl Recycler {
    /// With nobody suspected.
    pub fn new(config: RecycleConfig) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    /// Looks at the whole fleet and says what to do now, if anything. To be called about once a second.
    pub fn step(&mut self, fleet: &[Evidence], now: Instant) -> Option<Action> {
        self.suspect(fleet, now);
        match self.current {
            Some(current) => self.follow(current, fleet, now),
            None => self.begin(fleet, now),
        }
    }

    fn suspect(&mut self, fleet: &[Evidence], now: Instant) {
        let config = self.config;
        let reason = |evidence: &Evidence| {
            if evidence.wedged {
                Some(RecycleReason::Wedged)
            } else {
                evidence.leaks(&config).then_some(RecycleReason::Leaking)
            }
        };
        let mut suspicions = HashMap::with_capacity(self.suspicions.len());
        for evidence in fleet {
            if let Some(reason) = reason(evidence) {
                let known = self.suspicions.get(&evidence.worker);
                let since = known
                    .filter(|known| known.reason == reason)
                    .map_or(now, |known| known.since);
                suspicions.insert(evidence.worker, Suspicion { reason, since });
            }
        }
        self.suspicions = suspicions;
    }

    fn begin(&mut self, fleet: &[Evidence], now: Instant) -> Option<Action> {
        let since_last = |last| now.saturating_duration_since(last);
        if self
            .last_begun
            .is_some_and(|last| since_last(last) < self.config.pause)
        {
            return None;
        }
        let serving = |evidence: &Evidence| evidence.fit && !evidence.draining;
        let healthy = fleet.iter().filter(|evidence| serving(evidence)).count();
        let (evidence, suspicion) = fleet
            .iter()
            .filter(|evidence| !evidence.draining)
            .filter_map(|evidence| Some((evidence, self.suspicions.get(&evidence.worker)?)))
            .filter(|(_, suspicion)| {
                let needed = match suspicion.reason {
                    RecycleReason::Leaking => self.config.drift_for,
                    RecycleReason::Wedged => self.config.wedged_for,
                };
                now.saturating_duration_since(suspicion.since) >= needed
            })
            .filter(|(evidence, _)| {
                healthy >= self.config.keep_healthy + usize::from(serving(evidence))
            })
            .min_by_key(|(_, suspicion)| suspicion.since)?;
        let (worker, reason) = (evidence.worker, suspicion.reason);
        self.last_begun = Some(now);
        self.current = Some(Recycling {
            worker,
            reason,
            stage: Stage::Draining { since: now },
        });
        Some(Action::Drain(worker, reason))
    }

    fn follow(&mut self, current: Recycling, fleet: &[Evidence], now: Instant) -> Option<Action> {
        let Recycling { worker, reason, .. } = current;
        let Some(evidence) = fleet.iter().find(|evidence| evidence.worker == worker) else {
            // Removed in the meantime: nothing is left to do.
            self.current = None;
            return None;
        };
        match current.stage {
            Stage::Draining { since } => {
                let waited = now.saturating_duration_since(since);
                if evidence.in_flight > 0 && waited < self.config.drain_at_most {
                    return None;
                }
                let stage = Stage::Hooked {
                    since: now,
                    was_away: false,
                };
                self.current = Some(Recycling { stage, ..current });
                Some(Action::CallHook(worker, reason))
            }
            Stage::Hooked { since, was_away } => {
                let waited = now.saturating_duration_since(since);
                let suspected = self.suspicions.contains_key(&worker);
                let restarted = was_away || waited >= self.config.restart_unseen;
                if evidence.fit && !suspected && restarted {
                    self.current = None;
                    return Some(Action::Readmit(worker));
                }
                if waited >= self.config.absent_at_most {
                    self.current = None;
                    return Some(Action::GiveUp(worker));
                }
                let stage = Stage::Hooked {
                    since,
                    was_away: was_away || !evidence.fit,
                };
                self.current = Some(Recycling { stage, ..current });
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);
    const CAPACITY: u64 = 1000;

    fn fine(worker: u16) -> Evidence {
        Evidence {
            worker: WorkerId(worker),
            fit: true,
            wedged: false,
            draining: false,
            reported_tokens: Some(100),
            capacity_tokens: Some(CAPACITY),
            reported_requests: 1,
            claimed_tokens: 100,
            in_flight: 1,
        }
    }

    fn leaking(worker: u16) -> Evidence {
        Evidence {
            reported_tokens: Some(400),
            ..fine(worker)
        }
    }

    fn wedged(worker: u16) -> Evidence {
        Evidence {
            fit: false,
            wedged: true,
            ..fine(worker)
        }
    }

    /// Steps once a second until something is to be done.
    fn run(
        recycler: &mut Recycler,
        fleet: &[Evidence],
        now: &mut Instant,
        seconds: u64,
    ) -> Option<(Action, u64)> {
        (0..seconds).find_map(|second| {
            *now += SECOND;
            recycler.step(fleet, *now).map(|action| (action, second))
        })
    }

    #[test]
    fn a_leak_that_lasts_is_drained_restarted_and_taken_back() {
        let (mut recycler, mut now) = (Recycler::default(), Instant::now());
        let drained = run(&mut recycler, &[fine(0), leaking(1)], &mut now, 100);
        assert_eq!(
            drained,
            Some((Action::Drain(WorkerId(1), RecycleReason::Leaking), 60))
        );
        let busy = Evidence {
            draining: true,
            ..leaking(1)
        };
        assert_eq!(run(&mut recycler, &[fine(0), busy], &mut now, 100), None);
        let empty = Evidence {
            in_flight: 0,
            reported_requests: 0,
            claimed_tokens: 0,
            ..busy
        };
        let hooked = run(&mut recycler, &[fine(0), empty], &mut now, 2);
        assert_eq!(
            hooked,
            Some((Action::CallHook(WorkerId(1), RecycleReason::Leaking), 0))
        );
        let away = Evidence {
            fit: false,
            reported_tokens: None,
            ..empty
        };
        assert_eq!(run(&mut recycler, &[fine(0), away], &mut now, 30), None);
        let back = Evidence {
            fit: true,
            reported_tokens: Some(0),
            ..empty
        };
        let readmitted = run(&mut recycler, &[fine(0), back], &mut now, 2);
        assert_eq!(readmitted, Some((Action::Readmit(WorkerId(1)), 0)));
    }

    #[test]
    fn a_wedged_worker_is_not_waited_for_for_ever() {
        let (mut recycler, mut now) = (Recycler::default(), Instant::now());
        let drained = run(&mut recycler, &[fine(0), wedged(1)], &mut now, 100);
        assert_eq!(
            drained,
            Some((Action::Drain(WorkerId(1), RecycleReason::Wedged), 10))
        );
        let stuck = Evidence {
            draining: true,
            ..wedged(1)
        };
        let hooked = run(&mut recycler, &[fine(0), stuck], &mut now, 200);
        assert_eq!(
            hooked,
            Some((Action::CallHook(WorkerId(1), RecycleReason::Wedged), 119))
        );
        let gone = Evidence {
            wedged: false,
            ..stuck
        };
        let given_up = run(&mut recycler, &[fine(0), gone], &mut now, 700);
        assert_eq!(given_up, Some((Action::GiveUp(WorkerId(1)), 599)));
    }

    #[test]
    fn a_leak_that_passes_is_forgotten() {
        let (mut recycler, mut now) = (Recycler::default(), Instant::now());
        for _ in 0..10 {
            assert_eq!(
                run(&mut recycler, &[fine(0), leaking(1)], &mut now, 50),
                None
            );
            assert_eq!(run(&mut recycler, &[fine(0), fine(1)], &mut now, 1), None);
        }
    }

    #[test]
    fn what_another_gateway_holds_is_no_leak() {
        let (mut recycler, mut now) = (Recycler::default(), Instant::now());
        let shared = Evidence {
            reported_requests: 2,
            ..leaking(1)
        };
        assert_eq!(run(&mut recycler, &[fine(0), shared], &mut now, 1000), None);
    }

    #[test]
    fn the_last_healthy_worker_is_never_recycled() {
        let (mut recycler, mut now) = (Recycler::default(), Instant::now());
        assert_eq!(run(&mut recycler, &[leaking(0)], &mut now, 1000), None);
        assert_eq!(
            run(&mut recycler, &[leaking(0), wedged(1)], &mut now, 1).map(|(a, _)| a),
            None
        );
    }

    proptest! {
        #[test]
        fn one_at_a_time_with_pauses_and_enough_left(
            kinds in proptest::collection::vec(proptest::collection::vec(0_u8..4, 5), 1..200),
        ) {
            let config = RecycleConfig { keep_healthy: 2, drift_for: SECOND, wedged_for: SECOND, ..RecycleConfig::default() };
            let mut recycler = Recycler::new(config);
            let mut now = Instant::now();
            let mut drained: Option<WorkerId> = None;
            let mut last: Option<Instant> = None;
            for kinds in kinds {
                now += 20 * SECOND;
                let fleet: Vec<Evidence> = kinds.iter().zip(0_u16..).map(|(kind, id)| {
                    let evidence = match kind {
                        0 => fine(id),
                        1 => leaking(id),
                        2 => wedged(id),
                        _ => Evidence { fit: false, ..fine(id) },
                    };
                    Evidence { draining: drained == Some(WorkerId(id)), ..evidence }
                }).collect();
                match recycler.step(&fleet, now) {
                    Some(Action::Drain(worker, _)) => {
                        prop_assert!(drained.is_none());
                        prop_assert!(last.is_none_or(|last| now - last >= config.pause));
                        let left = fleet.iter().filter(|e| e.fit && !e.draining && e.worker != worker).count();
                        prop_assert!(left >= config.keep_healthy);
                        (drained, last) = (Some(worker), Some(now));
                    }
                    Some(Action::CallHook(worker, _)) => prop_assert_eq!(drained, Some(worker)),
                    Some(Action::Readmit(worker) | Action::GiveUp(worker)) => {
                        prop_assert_eq!(drained.take(), Some(worker));
                    }
                    None => {}
                }
            }
        }
    }
}
