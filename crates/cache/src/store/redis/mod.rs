//! Entries in Redis or Valkey, shared by all gateways.
//!
//! Redis is a hint: it may be slow, away or empty at any time. A request waits for it at most
//! [`GET_BUDGET`], and not at all while the breaker is open or no connection stands. Connecting, noticing that
//! it is back, and hearing of invalidations is the work of one task, the keeper.

mod address;
pub(crate) mod breaker;
mod keeper;
mod link;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use redis::{Cmd, FromRedisValue};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::{Epochs, Store};
use crate::counts::{Counts, Operation, StoreOutcome};
use crate::fingerprint::Fingerprint;
pub use address::{Address, AddressError};
use breaker::Breaker;
pub use link::Link;

/// The most that a lookup may add to a request.
pub const GET_BUDGET: Duration = Duration::from_millis(20);

/// Storing happens after the answer was given, so nobody waits for it.
const PUT_BUDGET: Duration = Duration::from_millis(500);

/// Entries on their way to Redis; more are dropped, for it is too slow for what we send.
const MAX_PUTS: usize = 128;

/// Every key starts so; the version is that of the entries.
const PREFIX: &str = "forespeak:cache:1:";

/// The hash of all epochs.
const EPOCHS_KEY: &str = "forespeak:cache:1:epochs";

/// The channel on which invalidations are told.
const EPOCHS_CHANNEL: &str = "forespeak:cache:1:invalidated";

/// What the store and its keeper share.
struct Shared {
    address: Address,
    link: ArcSwapOption<Link>,
    breaker: Breaker,
    epochs: Arc<Epochs>,
    counts: Arc<Counts>,
    puts: Semaphore,
}

pub(crate) struct Redis {
    shared: Arc<Shared>,
    keeper: AbortHandle,
}

impl Redis {
    /// Starts the keeper. Whether Redis is there shows later: it may come any time.
    pub(crate) fn start(
        address: &str,
        epochs: Arc<Epochs>,
        counts: Arc<Counts>,
    ) -> Result<Self, AddressError> {
        let shared = Arc::new(Shared {
            address: Address::parse(address)?,
            link: ArcSwapOption::empty(),
            breaker: Breaker::default(),
            epochs,
            counts,
            puts: Semaphore::new(MAX_PUTS),
        });
        let keeper = tokio::spawn(keeper::keep(Arc::clone(&shared))).abort_handle();
        Ok(Self { shared, keeper })
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Shared {
    /// Asks within a budget; `None` is any kind of failure.
    async fn ask<T: FromRedisValue>(
        &self,
        operation: Operation,
        command: &Cmd,
        budget: Duration,
    ) -> Option<T> {
        let link = self.link.load_full().filter(|_| !self.breaker.is_open());
        let Some(link) = link else {
            self.counts
                .store(operation, StoreOutcome::Skipped, Duration::ZERO);
            return None;
        };
        let started = Instant::now();
        let answer = timeout(budget, link.query(command)).await;
        let (outcome, answer) = match answer {
            Ok(Ok(answer)) => (StoreOutcome::Done, Some(answer)),
            Ok(Err(error)) => {
                tracing::debug!(target: "forespeak::cache", %error, "redis refused");
                (StoreOutcome::Failed, None)
            }
            Err(_) => (StoreOutcome::TimedOut, None),
        };
        self.counts.store(operation, outcome, started.elapsed());
        if answer.is_some() {
            self.breaker.succeeded();
        } else {
            self.breaker.failed();
        }
        answer
    }
}

fn entry_key(key: Fingerprint) -> String {
    format!("{PREFIX}{key}")
}

impl Store for Redis {
    fn get(&self, key: Fingerprint) -> BoxFuture<'_, Option<Bytes>> {
        Box::pin(async move {
            let command = Cmd::get(entry_key(key));
            self.shared
                .ask::<Option<Bytes>>(Operation::Get, &command, GET_BUDGET)
                .await?
        })
    }

    fn put(&self, key: Fingerprint, entry: Bytes, ttl: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let Ok(_turn) = self.shared.puts.try_acquire() else {
                self.shared
                    .counts
                    .store(Operation::Put, StoreOutcome::Skipped, Duration::ZERO);
                return;
            };
            let mut command = redis::cmd("SET");
            let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1);
            command
                .arg(entry_key(key))
                .arg(&entry[..])
                .arg("PX")
                .arg(ttl);
            self.shared
                .ask::<()>(Operation::Put, &command, PUT_BUDGET)
                .await;
        })
    }

    fn announce(&self, slot: u16, epoch: u64) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let is_kept = self
                .shared
                .ask::<i64>(
                    Operation::Invalidate,
                    &raise_command(slot, epoch),
                    PUT_BUDGET,
                )
                .await
                .is_some();
            let mut publish = redis::cmd("PUBLISH");
            publish.arg(EPOCHS_CHANNEL).arg(format!("{slot}:{epoch}"));
            let is_told = self
                .shared
                .ask::<i64>(Operation::Invalidate, &publish, PUT_BUDGET)
                .await
                .is_some();
            is_kept && is_told
        })
    }
}

/// Raises an epoch in Redis, never lowers one.
fn raise_command(slot: u16, epoch: u64) -> Cmd {
    const SCRIPT: &str = "local now = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0') \
                          if now < tonumber(ARGV[2]) then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end \
                          return 1";
    let mut command = redis::cmd("EVAL");
    command
        .arg(SCRIPT)
        .arg(1)
        .arg(EPOCHS_KEY)
        .arg(slot)
        .arg(epoch);
    command
}
