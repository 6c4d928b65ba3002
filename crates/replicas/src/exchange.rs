//! The task that tells the others and listens to them.
//!
//! A turn is one bulletin written and all others read, and the prompts of the last turn appended to a short
//! stream. A turn that fails, or takes too long, is a turn without news: what was heard before fades by itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cache::{AddressError, RedisAddress, RedisLink};
use redis::RedisResult;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::board::{Board, Elsewhere, FORGOTTEN_AFTER, Hearsay, MAX_GATEWAYS};
use crate::bulletin::{Bulletin, GatewayId, Kind, Use};
use crate::diary::Diary;
use crate::keys::{Keys, Name};
use crate::prefixes::{self, Outbox, Prefix};

/// Between two turns: what one knows, all know after two of them.
pub const TURN: Duration = Duration::from_millis(200);

/// The longest a turn may take.
const TURN_BUDGET: Duration = Duration::from_millis(500);

/// The longest an attempt to connect may take.
const CONNECT_BUDGET: Duration = Duration::from_secs(1);

/// Failed turns in a row after which the connection is given up: the server may have moved.
const MAX_FAILURES: u32 = 3;

/// Messages about prompts that Redis keeps: of 32 KiB at most, so 2 MiB.
const STREAM_LENGTH: usize = 64;

/// Messages about prompts that are read in one turn.
const STREAM_READ: usize = 16;

/// A message of a stream: its number, and its fields with their values.
type Message = (String, Vec<(String, Vec<u8>)>);

/// Where and with whom.
#[derive(Debug, Clone)]
pub struct Config {
    /// The address of Redis.
    pub redis: String,
    /// Gateways of other groups are not heard.
    pub group: String,
    /// What the group has in common.
    pub keys: Keys,
}

/// What a gateway has to say.
#[derive(Debug, Default)]
pub struct Said {
    /// Its workers that get nothing, by its own experience.
    pub ill: Vec<(Name, Kind)>,
    /// What its tenants have used.
    pub uses: Vec<Use>,
    /// Prompts that went to workers since it was last asked.
    pub prefixes: Vec<Prefix>,
}

/// What the others say.
#[derive(Debug)]
pub struct News {
    /// How many others there are.
    pub others: usize,
    /// Workers that somebody finds ill. Those not in it, nobody does.
    pub troubles: HashMap<Name, Hearsay>,
    /// What was used elsewhere since the last news.
    pub uses: HashMap<Name, Elsewhere>,
}

/// The gateway that talks and listens.
pub trait Household: Send + Sync + 'static {
    /// What is to be told.
    fn say(&self, now: Instant) -> Said;
    /// What was heard, also if that is nothing: once a turn.
    fn hear(&self, news: News, now: Instant);
    /// Where prompts went from other gateways.
    fn hear_prefixes(&self, prefixes: Vec<Prefix>);
}

#[derive(Debug, Default)]
struct Counters {
    is_connected: AtomicBool,
    others: AtomicUsize,
    turns: AtomicU64,
    turns_failed: AtomicU64,
    rejected: AtomicU64,
    prefixes_told: AtomicU64,
    prefixes_heard: AtomicU64,
}

/// A reading of what the exchange has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Whether the last turn went well.
    pub is_connected: bool,
    /// Other gateways that are there.
    pub others: usize,
    /// Turns that went well.
    pub turns: u64,
    /// Turns that did not.
    pub turns_failed: u64,
    /// Messages that were forged, foreign or unreadable.
    pub rejected: u64,
    /// Prompts told to others.
    pub prefixes_told: u64,
    /// Prompts that others told.
    pub prefixes_heard: u64,
}

/// The running exchange. Dropping it ends it.
#[derive(Debug)]
pub struct Replicas {
    counters: Arc<Counters>,
    task: AbortHandle,
}

impl Replicas {
    /// Starts the exchange; must be called within a runtime. Whether Redis is there shows later.
    ///
    /// # Errors
    /// If the address is not usable.
    pub fn start(config: Config, household: Arc<dyn Household>) -> Result<Self, AddressError> {
        let address = RedisAddress::parse(&config.redis)?;
        let counters = Arc::new(Counters::default());
        let exchange = Exchange {
            address,
            // In braces what a cluster places keys by: both lie on one node.
            bulletins_key: format!("forespeak:replicas:1:{{{}}}:bulletins", config.group),
            prefixes_key: format!("forespeak:replicas:1:{{{}}}:prefixes", config.group),
            keys: config.keys,
            gateway: GatewayId(uuid::Uuid::new_v4().as_u128()),
            sequence: 0,
            household,
            board: Board::default(),
            diary: Diary::default(),
            outbox: Outbox::default(),
            link: None,
            last_prefix: None,
            failures: 0,
            counters: Arc::clone(&counters),
        };
        let task = tokio::spawn(exchange.run()).abort_handle();
        Ok(Self { counters, task })
    }

    /// What it has done.
    pub fn counts(&self) -> Counts {
        let Counters {
            is_connected,
            others,
            turns,
            turns_failed,
            rejected,
            prefixes_told,
            prefixes_heard,
        } = &*self.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            is_connected: is_connected.load(Ordering::Relaxed),
            others: others.load(Ordering::Relaxed),
            turns: get(turns),
            turns_failed: get(turns_failed),
            rejected: get(rejected),
            prefixes_told: get(prefixes_told),
            prefixes_heard: get(prefixes_heard),
        }
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Exchange {
    address: RedisAddress,
    bulletins_key: String,
    prefixes_key: String,
    keys: Keys,
    gateway: GatewayId,
    sequence: u64,
    household: Arc<dyn Household>,
    board: Board,
    diary: Diary,
    outbox: Outbox,
    link: Option<RedisLink>,
    /// The last message about prompts that was read.
    last_prefix: Option<String>,
    failures: u32,
    counters: Arc<Counters>,
}

impl Exchange {
    async fn run(mut self) {
        let mut ticks = interval(TURN);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.turn().await;
        }
    }

    async fn turn(&mut self) {
        let said = self.household.say(Instant::now());
        let went_well = self.reach().await && self.tell_and_listen(said).await;
        let now = Instant::now();
        let news = News {
            others: self.board.others(now),
            troubles: self.board.troubles(now),
            uses: self.board.uses(now),
        };
        self.counters.others.store(news.others, Ordering::Relaxed);
        self.household.hear(news, now);
        self.note(went_well);
    }

    /// Connects, if that is needed. Whether there is a connection.
    async fn reach(&mut self) -> bool {
        if self.link.is_none() {
            let connected = timeout(CONNECT_BUDGET, RedisLink::connect(&self.address)).await;
            self.link = connected.ok().and_then(Result::ok);
            // After a restart of Redis its numbers begin anew.
            self.last_prefix = None;
        }
        self.link.is_some()
    }

    fn note(&mut self, went_well: bool) {
        let was_connected = self
            .counters
            .is_connected
            .swap(went_well, Ordering::Relaxed);
        if went_well {
            self.failures = 0;
            self.counters.turns.fetch_add(1, Ordering::Relaxed);
            if !was_connected {
                tracing::info!(target: "forespeak::replicas", "in touch with the other gateways");
            }
            return;
        }
        self.counters.turns_failed.fetch_add(1, Ordering::Relaxed);
        self.failures += 1;
        if self.failures >= MAX_FAILURES {
            self.link = None;
        }
        if was_connected {
            tracing::warn!(target: "forespeak::replicas", "out of touch with the other gateways; going by what this one knows");
        }
    }

    async fn tell_and_listen(&mut self, said: Said) -> bool {
        let Some(link) = self.link.clone() else {
            return false;
        };
        let exchanged = timeout(TURN_BUDGET, self.exchange(&link, said)).await;
        matches!(exchanged, Ok(Ok(())))
    }

    async fn exchange(&mut self, link: &RedisLink, said: Said) -> RedisResult<()> {
        self.sequence += 1;
        let bulletin = Bulletin {
            gateway: self.gateway,
            sequence: self.sequence,
            troubles: self.diary.write(&said.ill, Instant::now()),
            uses: said.uses,
        };
        let mut tell = redis::cmd("HSET");
        tell.arg(&self.bulletins_key)
            .arg(field(self.gateway))
            .arg(bulletin.encode(&self.keys));
        link.query::<i64>(&tell).await?;
        let mut expire = redis::cmd("PEXPIRE");
        expire
            .arg(&self.bulletins_key)
            .arg(FORGOTTEN_AFTER.as_millis() as u64);
        link.query::<i64>(&expire).await?;
        self.read_bulletins(link).await?;
        self.tell_prefixes(link, said.prefixes).await?;
        self.read_prefixes(link).await
    }

    async fn read_bulletins(&mut self, link: &RedisLink) -> RedisResult<()> {
        let mut read = redis::cmd("HGETALL");
        read.arg(&self.bulletins_key);
        let all: HashMap<String, Vec<u8>> = link.query(&read).await?;
        let now = Instant::now();
        let own = field(self.gateway);
        let others = all.iter().filter(|(name, _)| **name != own);
        for (_, sealed) in others.take(MAX_GATEWAYS) {
            match Bulletin::decode(&self.keys, sealed) {
                Some(bulletin) => {
                    self.board.hear(bulletin, now);
                }
                None => {
                    self.counters.rejected.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        let gone = self.board.forget(now);
        if !gone.is_empty() {
            let mut delete = redis::cmd("HDEL");
            delete.arg(&self.bulletins_key);
            for gateway in gone {
                delete.arg(field(gateway));
            }
            link.query::<i64>(&delete).await?;
        }
        Ok(())
    }

    async fn tell_prefixes(&mut self, link: &RedisLink, prefixes: Vec<Prefix>) -> RedisResult<()> {
        let chosen = self.outbox.choose(prefixes);
        if chosen.is_empty() {
            return Ok(());
        }
        let mut tell = redis::cmd("XADD");
        tell.arg(&self.prefixes_key)
            .arg(&["MAXLEN", "~"])
            .arg(STREAM_LENGTH)
            .arg("*")
            .arg("m")
            .arg(prefixes::encode(&self.keys, self.gateway.0, &chosen));
        link.query::<String>(&tell).await?;
        let told = chosen.len() as u64;
        self.counters
            .prefixes_told
            .fetch_add(told, Ordering::Relaxed);
        Ok(())
    }

    async fn read_prefixes(&mut self, link: &RedisLink) -> RedisResult<()> {
        let Some(last) = self.last_prefix.clone() else {
            // A gateway that starts learns where prompts went lately. Messages are numbered by Redis's clock.
            let (seconds, _): (u64, u64) = link.query(&redis::cmd("TIME")).await?;
            let lately = seconds.saturating_sub(FORGOTTEN_AFTER.as_secs());
            self.last_prefix = Some(format!("{lately}000-0"));
            return Ok(());
        };
        let mut read = redis::cmd("XREAD");
        read.arg("COUNT")
            .arg(STREAM_READ)
            .arg("STREAMS")
            .arg(&self.prefixes_key)
            .arg(last);
        let read: Option<Vec<(String, Vec<Message>)>> = link.query(&read).await?;
        let mut heard = Vec::new();
        for (id, fields) in read
            .into_iter()
            .flatten()
            .flat_map(|(_, messages)| messages)
        {
            for (_, sealed) in fields {
                match prefixes::decode(&self.keys, &sealed) {
                    Some((sender, _)) if sender == self.gateway.0 => {}
                    Some((_, prefixes)) => heard.extend(prefixes),
                    None => {
                        self.counters.rejected.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            self.last_prefix = Some(id);
        }
        if !heard.is_empty() {
            let count = heard.len() as u64;
            self.counters
                .prefixes_heard
                .fetch_add(count, Ordering::Relaxed);
            self.household.hear_prefixes(heard);
        }
        Ok(())
    }
}

fn field(gateway: GatewayId) -> String {
    format!("{:032x}", gateway.0)
}
