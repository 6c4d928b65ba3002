//! Blocks in Redis or Valkey, shared by all instances that name the same server.
//!
//! A run of blocks is asked for in pieces of [`PIPELINE`] commands at once, so that it takes one way there and back
//! for each piece and not for each block. Redis is a hint, as everywhere: after a few failures nobody waits for it
//! until a new connection stands, and blocks expire that were not used for [`UNUSED_FOR`].

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cache::{AddressError, RedisAddress, RedisBreaker, RedisLink};
use engine::store::{BlockStore, StoreKey, Tier, Written};
use futures_util::future::join_all;
use redis::{Cmd, FromRedisValue};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{timeout, timeout_at};

/// Every key starts so; the version is that of this layout.
const PREFIX: &str = "forespeak:kv:1:";

/// Commands under way at once.
const PIPELINE: usize = 32;

/// Blocks unused for so long expire.
const UNUSED_FOR: Duration = Duration::from_secs(24 * 3600);

/// How long writing a piece may take; nobody waits for it.
const WRITE_BUDGET: Duration = Duration::from_secs(2);

/// The same for connecting.
const CONNECT_BUDGET: Duration = Duration::from_secs(1);

/// The pause after a failed attempt to connect.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Blocks in Redis.
pub struct Redis {
    reading: Mutex<Side>,
    writing: Mutex<Side>,
    /// What this instance wrote, oldest first.
    written: Mutex<(VecDeque<(StoreKey, usize)>, usize)>,
    limit: usize,
}

/// A connection of one thread. Reading never waits for a write that is under way.
struct Side {
    address: RedisAddress,
    runtime: Runtime,
    link: Option<RedisLink>,
    breaker: RedisBreaker,
    retry_at: Option<Instant>,
}

impl Redis {
    /// Whether Redis is there shows later: it may come any time. Of what it writes, this instance leaves at most
    /// `limit` bytes there; `maxmemory` of the server bounds all of them together.
    ///
    /// # Errors
    /// If the address is none that can be used.
    pub fn new(address: &str, limit: usize) -> Result<Self, AddressError> {
        Ok(Self {
            reading: Mutex::new(Side::new(address)?),
            writing: Mutex::new(Side::new(address)?),
            written: Mutex::default(),
            limit,
        })
    }

    /// Notes what was written and gives the oldest back, as far as it is too much.
    fn note(&self, kept: &[(StoreKey, usize)]) -> Vec<StoreKey> {
        let mut written = lock(&self.written);
        let (order, bytes) = &mut *written;
        for &(key, size) in kept {
            order.push_back((key, size));
            *bytes += size;
        }
        let mut gone = Vec::new();
        while *bytes > self.limit {
            let Some((key, size)) = order.pop_front() else {
                break;
            };
            *bytes -= size;
            gone.push(key);
        }
        gone
    }
}

impl Side {
    fn new(address: &str) -> Result<Self, AddressError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Self {
            address: RedisAddress::parse(address)?,
            runtime: runtime.map_err(|error| AddressError::Unusable(error.to_string()))?,
            link: None,
            breaker: RedisBreaker::default(),
            retry_at: None,
        })
    }

    /// Makes sure that there is a connection, if that is worth trying.
    fn connected(&mut self, budget: Duration) -> bool {
        if self.breaker.is_open() {
            self.link = None;
            self.breaker.close();
            self.retry_at = Some(Instant::now() + RETRY_AFTER);
        }
        if self.link.is_some() {
            return true;
        }
        if self.retry_at.is_some_and(|at| Instant::now() < at) {
            return false;
        }
        let connecting = RedisLink::connect(&self.address);
        let link = self
            .runtime
            .block_on(async { timeout(budget.min(CONNECT_BUDGET), connecting).await });
        match link {
            Ok(Ok(link)) => {
                self.link = Some(link);
                self.retry_at = None;
            }
            failed => {
                if self.retry_at.is_none() {
                    let why = match failed {
                        Ok(Err(error)) => error.to_string(),
                        _ => "no answer".to_owned(),
                    };
                    tracing::warn!(why, "redis is away; KV blocks are not shared through it");
                }
                self.retry_at = Some(Instant::now() + RETRY_AFTER);
            }
        }
        self.link.is_some()
    }

    /// Asks all at once; `None` for what was not answered in time.
    fn ask<T: FromRedisValue>(&mut self, commands: &[Cmd], deadline: Instant) -> Vec<Option<T>> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || !self.connected(left) {
            return Vec::new();
        }
        let Some(link) = &self.link else {
            return Vec::new();
        };
        let questions = commands
            .iter()
            .map(|command| async { timeout_at(deadline.into(), link.query::<T>(command)).await });
        let answers = self.runtime.block_on(join_all(questions));
        let answers: Vec<Option<T>> = answers
            .into_iter()
            .map(|answer| answer.ok().and_then(Result::ok))
            .collect();
        if answers.iter().all(Option::is_some) {
            self.breaker.succeeded();
        } else {
            self.breaker.failed();
        }
        answers
    }

    fn exist(&mut self, keys: &[StoreKey], deadline: Instant) -> Vec<bool> {
        let commands: Vec<Cmd> = keys.iter().map(|key| Cmd::exists(name(key))).collect();
        let answers = self.ask::<u8>(&commands, deadline);
        answers.into_iter().map(|there| there == Some(1)).collect()
    }
}

fn name(key: &StoreKey) -> String {
    format!("{PREFIX}{key}")
}

fn expiry() -> u64 {
    UNUSED_FOR.as_millis() as u64
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BlockStore for Redis {
    fn tier(&self) -> Tier {
        Tier::Shared
    }

    fn leading(&self, keys: &[StoreKey], deadline: Instant) -> usize {
        let mut side = lock(&self.reading);
        // Who has not the first has none: asked alone, so that a miss costs next to nothing.
        let (first, rest) = keys.split_at(keys.len().min(1));
        if side.exist(first, deadline).first() != Some(&true) {
            return 0;
        }
        let mut there = first.len();
        for piece in rest.chunks(PIPELINE * 8) {
            let more = side.exist(piece, deadline);
            let run = more.iter().take_while(|there| **there).count();
            there += run;
            if run < piece.len() {
                break;
            }
        }
        there
    }

    fn read(&self, keys: &[StoreKey], deadline: Instant) -> Vec<Bytes> {
        let mut side = lock(&self.reading);
        let mut found = Vec::with_capacity(keys.len());
        for piece in keys.chunks(PIPELINE) {
            let commands: Vec<Cmd> = piece
                .iter()
                .map(|key| {
                    let mut command = redis::cmd("GETEX");
                    command.arg(name(key)).arg("PX").arg(expiry());
                    command
                })
                .collect();
            let answers = side.ask::<Option<Bytes>>(&commands, deadline);
            let run = answers.into_iter().map_while(Option::flatten);
            found.extend(run);
            if !found.len().is_multiple_of(PIPELINE) {
                break;
            }
        }
        found
    }

    fn write(&self, blocks: Vec<(StoreKey, Bytes)>) -> Written {
        let mut side = lock(&self.writing);
        let mut written = Written::default();
        let mut kept = Vec::new();
        for piece in blocks.chunks(PIPELINE) {
            let deadline = Instant::now() + WRITE_BUDGET;
            let keys: Vec<StoreKey> = piece.iter().map(|(key, _)| *key).collect();
            let there = side.exist(&keys, deadline);
            if there.is_empty() {
                written.failed += piece.len();
                continue;
            }
            let missing: Vec<&(StoreKey, Bytes)> = piece
                .iter()
                .zip(there)
                .filter(|(_, there)| !there)
                .map(|(block, _)| block)
                .collect();
            let commands: Vec<Cmd> = missing
                .iter()
                .map(|(key, sealed)| {
                    let mut command = redis::cmd("SET");
                    command
                        .arg(name(key))
                        .arg(&sealed[..])
                        .arg("PX")
                        .arg(expiry());
                    command
                })
                .collect();
            let answers = side.ask::<()>(&commands, deadline);
            for (place, (key, sealed)) in missing.into_iter().enumerate() {
                match answers.get(place) {
                    Some(Some(())) => kept.push((*key, sealed.len())),
                    _ => written.failed += 1,
                }
            }
        }
        let gone = self.note(&kept);
        if !gone.is_empty() {
            let commands: Vec<Cmd> = gone.iter().map(|key| Cmd::unlink(name(key))).collect();
            side.ask::<u8>(&commands, Instant::now() + WRITE_BUDGET);
        }
        written.kept = kept.into_iter().map(|(key, _)| key).collect();
        written.dropped = gone.into_iter().map(|key| (key, None)).collect();
        written
    }

    fn discard(&self, key: &StoreKey) {
        let deadline = Instant::now() + WRITE_BUDGET;
        lock(&self.reading).ask::<u8>(&[Cmd::unlink(name(key))], deadline);
    }
}
