//! A pool of workers that serve one model, and where its requests go.

use std::sync::Arc;
use std::time::Duration;

use fleet::{Fleet, FleetError, Snapshot, WorkerId};
use routing::admission::{Refusal, RefusalCause};
use routing::index::{IndexConfig, PrefixIndex};
use routing::keys::KeySeed;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout_at};

use super::ask::Ask;
use super::books::{Books, Wanted};
use super::chosen::Chosen;
use super::config::PoolConfig;
use super::desk::{Answer, Desk};
use super::events;
use super::placement::{Held, Placement};
use super::reading::Reader;
use super::shared::Shared;
use crate::worker::Codec;

/// How often those who wait are looked at even if nobody left: new metrics may show room.
const LOOK_AROUND_EVERY: Duration = Duration::from_millis(100);

/// A pool of workers. Dropping it stops watching them; requests under way are not disturbed.
pub struct Pool {
    name: String,
    fleet: Fleet,
    reader: Reader,
    shared: Arc<Shared>,
    /// Dropping the set ends its tasks.
    _tasks: JoinSet<()>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("name", &self.name).finish()
    }
}

impl Pool {
    /// Begins to watch the workers; must be called within a runtime. `codec` is the language of the
    /// model, without which prompts are compared as text and KV events are of no use.
    ///
    /// # Errors
    /// If a worker of the configuration cannot be used.
    pub fn start(config: PoolConfig, codec: Option<Arc<dyn Codec>>) -> Result<Self, FleetError> {
        let (fleet, updates) = Fleet::start(config.fleet.clone())?;
        let seed = KeySeed(random());
        let index = PrefixIndex::new(IndexConfig {
            block_tokens: config.block_tokens,
            byte_cap: config.index_bytes,
            ..IndexConfig::new(seed)
        });
        let books = Books::new(&config, index, random());
        let desk = Desk::new(books, config.queue, config.decisions_kept);
        let shared = Arc::new(Shared::new(Arc::clone(fleet.registry()), desk));
        let reader = Reader::new(codec, seed, config.block_tokens, config.memo_bytes);
        let mut tasks = JoinSet::new();
        tasks.spawn(events::follow(Arc::clone(&shared), seed, updates));
        tasks.spawn(look_around(Arc::clone(&shared)));
        Ok(Self {
            name: config.name,
            fleet,
            reader,
            shared,
            _tasks: tasks,
        })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its workers and how they are.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Its workers at this moment.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.fleet.snapshot()
    }

    /// Reads the prompt, admits the request (which may wait its turn), and chooses a worker other than
    /// `avoid`. Dropping the future leaves the line; dropping the placement gives everything back.
    ///
    /// # Errors
    /// If the request cannot be served now, or not at all. No worker has been touched then.
    pub async fn place(&self, ask: &Ask, avoid: &[WorkerId]) -> Result<Placement, Refusal> {
        let (prompt, _how) = self.reader.read(ask).await;
        let first_key = prompt.keys.first().map_or(0, |key| key.0);
        let wanted = Arc::new(Wanted {
            tenant: Arc::clone(&ask.tenant),
            max_tokens: ask.max_tokens,
            answers: ask.answers,
            priority: ask.priority,
            session: ask.session.unwrap_or(first_key),
            prompt,
            avoid: avoid.to_vec(),
        });
        let now = self.shared.now();
        let latest = self.shared.at(ask.deadline).since_start;
        let answer = self
            .shared
            .desk()
            .ask(&self.fleet.snapshot(), &wanted, latest, now);
        let held = match answer {
            Answer::Booked(booking) => Held::new(&self.shared, booking),
            Answer::Wait {
                number,
                word,
                deadline,
            } => self.wait(&wanted, number, word, deadline).await?,
            Answer::Refused(refusal) => return Err(refusal),
        };
        Ok(Placement::new(held, ask.answers))
    }

    async fn wait(
        &self,
        wanted: &Wanted,
        number: u64,
        mut word: oneshot::Receiver<Held>,
        deadline: Duration,
    ) -> Result<Held, Refusal> {
        // Declared after `word`, hence dropped before it: whoever walks away leaves the line first.
        let place = InLine {
            shared: &self.shared,
            number,
        };
        let in_time = timeout_at(self.shared.instant(deadline), &mut word).await;
        drop(place);
        match in_time {
            Ok(Ok(held)) => Ok(held),
            Ok(Err(_nobody_left)) => Err(Refusal {
                cause: RefusalCause::NoWorkers,
                retry_after: Some(routing::admission::MIN_RETRY),
            }),
            // Word may have come in the last moment.
            Err(_late) => word.try_recv().map_err(|_none| {
                let retry_after = self.shared.desk().retry_after(wanted, self.shared.now());
                Refusal {
                    cause: RefusalCause::TooLong,
                    retry_after: Some(retry_after),
                }
            }),
        }
    }

    /// The last decisions, newest first.
    pub fn decisions(&self) -> Vec<Arc<Chosen>> {
        self.shared.desk().recent().cloned().collect()
    }
}

/// A place in the line, given up when dropped.
struct InLine<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.shared.desk().leave(self.number);
    }
}

async fn look_around(shared: Arc<Shared>) {
    let mut ticks = interval(LOOK_AROUND_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        shared.serve_waiting();
    }
}

/// A number nobody can guess.
fn random() -> u64 {
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    // Never 0, from which the draws could not move.
    (high ^ low.rotate_left(32)) | 1
}
