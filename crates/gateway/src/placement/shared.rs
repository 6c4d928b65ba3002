//! What a pool and everything it has handed out share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fleet::Registry;
use fleet::health::PanicConfig;
use tokio::time::Instant;

use super::books::Now;
use super::claim::Claim;
use super::desk::{Delivery, Desk};
use super::metrics::Meters;
use super::outcome::Reported;
use super::placement::Held;
use super::reading::Reader;
use super::report::PoolReport;

pub(super) struct Shared {
    pub(super) pool: Arc<str>,
    pub(super) reader: Reader,
    pub(super) meters: Meters,
    pub(super) panic: PanicConfig,
    registry: Arc<Registry>,
    desk: Mutex<Desk>,
    start: Instant,
}

impl Shared {
    pub(super) fn new(
        pool: Arc<str>,
        reader: Reader,
        meters: Meters,
        panic: PanicConfig,
        registry: Arc<Registry>,
        desk: Desk,
    ) -> Self {
        Self {
            pool,
            reader,
            meters,
            panic,
            registry,
            desk: Mutex::new(desk),
            start: Instant::now(),
        }
    }

    /// The pool as it is now.
    pub(super) fn report(&self) -> PoolReport {
        let (now, fleet) = (self.now(), self.registry.snapshot());
        let prompt_memory_bytes = self.reader.memory_bytes();
        let mut desk = self.desk();
        desk.books.catch_up(&fleet, now);
        let (waiting_requests, waiting_tokens) = desk.waiting();
        PoolReport {
            pool: self.pool.to_string(),
            policy: desk.books.policy().name(),
            waiting_requests,
            waiting_tokens,
            index: desk.books.index.stats(),
            prompt_memory_bytes,
            workers: desk.books.report(&fleet, now),
        }
    }

    pub(super) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The desk. Held for microseconds; nothing that gives itself back may be dropped under it.
    pub(super) fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Now {
        self.at(Instant::now())
    }

    pub(super) fn at(&self, instant: Instant) -> Now {
        Now {
            since_start: instant.saturating_duration_since(self.start),
            instant: instant.into_std(),
        }
    }

    /// When it will be so late.
    pub(super) fn instant(&self, since_start: std::time::Duration) -> Instant {
        self.start + since_start
    }

    /// Gives those who wait what there is room for.
    pub(super) fn serve_waiting(self: &Arc<Self>) {
        let fleet = self.registry.snapshot();
        let deliveries = self.desk().serve_waiting(&fleet, self.now());
        self.deliver(deliveries);
    }

    pub(super) fn settle(self: &Arc<Self>, claim: Claim) {
        let now = self.now();
        let deliveries = {
            let mut desk = self.desk();
            desk.books.settle(claim, now);
            if desk.waiting().0 == 0 {
                return;
            }
            desk.serve_waiting(&self.registry.snapshot(), now)
        };
        self.deliver(deliveries);
    }

    pub(super) fn first_token(&self, claim: Claim) {
        let now = self.now();
        self.desk().books.first_token(claim, now);
    }

    pub(super) fn claim_more(&self, claim: Claim, tokens: u64) {
        self.desk().books.claim_more(claim, tokens);
    }

    pub(super) fn learn(
        &self,
        claim: Claim,
        predicted_cached: u64,
        answers: u32,
        reported: Reported,
    ) {
        let mut desk = self.desk();
        let block = desk.books.learn(claim, predicted_cached, answers, reported);
        drop(desk);
        if let Some(cached) = reported.cached_tokens {
            self.meters.reported(predicted_cached, cached, block);
        }
    }

    /// Whoever has left in the meantime does not take its booking: it is dropped here, outside the lock,
    /// and with that goes to the next in line.
    fn deliver(self: &Arc<Self>, deliveries: Vec<Delivery>) {
        for (word, booking) in deliveries {
            let _left = word.send(Held::new(self, booking));
        }
    }
}
