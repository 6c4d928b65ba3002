//! A pool of workers that serve one model, and where its requests go.

use std::sync::Arc;
use std::time::Duration;

use fleet::health::Condition;
use fleet::{Fleet, FleetError, Snapshot, WorkerId};
use routing::admission::{Refusal, RefusalCause};
use routing::index::{IndexConfig, PrefixIndex};
use routing::keys::KeySeed;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::ask::Ask;
use super::books::{Books, Wanted};
use super::chosen::Chosen;
use super::config::PoolConfig;
use super::desk::{Answer, Desk};
use super::explain::Explained;
use super::metrics::Stage;
use super::placement::{Held, Placement};
use super::reading::{How, Reader};
use super::report::PoolReport;
use super::shared::Shared;
use super::{events, recycling};
use crate::worker::Codec;

/// How often those who wait are looked at even if nobody left: new metrics may show room.
const LOOK_AROUND_EVERY: Duration = Duration::from_millis(100);

/// A pool of workers. Dropping it stops watching them; requests under way are not disturbed.
pub struct Pool {
    fleet: Fleet,
    pub(super) shared: Arc<Shared>,
    /// Dropping the set ends its tasks.
    _tasks: JoinSet<()>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({})", self.name())
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
        let name: Arc<str> = Arc::from(config.name.as_str());
        let seed = config.shared_seed.unwrap_or_else(|| KeySeed(random()));
        let index = PrefixIndex::new(IndexConfig {
            block_tokens: config.block_tokens,
            byte_cap: config.index_bytes,
            worth: config.loadable_worth,
            ..IndexConfig::new(seed)
        });
        let books = Books::new(&config, index, random());
        let shared = Arc::new(Shared::new(
            Arc::clone(&name),
            Reader::new(codec, seed, config.block_tokens, config.memo_bytes),
            config.metrics.meters(&name),
            config.panic,
            Arc::clone(fleet.registry()),
            Desk::new(books, config.queue, config.decisions_kept),
        ));
        config.metrics.show(&shared);
        let mut tasks = JoinSet::new();
        tasks.spawn(events::follow(Arc::clone(&shared), seed, updates));
        tasks.spawn(events::watch(Arc::clone(&shared)));
        tasks.spawn(look_around(Arc::clone(&shared)));
        if let Some(recycling) = config.recycling {
            tasks.spawn(recycling::run(Arc::clone(&shared), recycling));
        }
        Ok(Self {
            fleet,
            shared,
            _tasks: tasks,
        })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.shared.pool
    }

    /// Its workers and how they are.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Its workers at this moment.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.fleet.snapshot()
    }

    /// The pool as it is now.
    pub fn report(&self) -> PoolReport {
        self.shared.report()
    }

    /// Whether any worker could be given a request: it lives, and is not merely hoped for because all are dead.
    pub fn can_serve(&self) -> bool {
        let now = std::time::Instant::now();
        let fleet = self.fleet.snapshot();
        let standings = fleet.standings(self.name(), self.shared.panic, &[], now);
        standings.iter().any(|(worker, standing)| {
            let lives = !matches!(
                worker.condition(now),
                Condition::Starting | Condition::Asleep | Condition::Down(_)
            );
            standing.weight > 0.0 && lives
        })
    }

    /// Whether anybody but this worker is fit to serve.
    pub fn can_do_without(&self, worker: WorkerId) -> bool {
        let fleet = self.fleet.snapshot();
        let standings = fleet.standings(
            self.name(),
            self.shared.panic,
            &[worker],
            std::time::Instant::now(),
        );
        standings
            .iter()
            .any(|(_, standing)| standing.weight > 0.0 && !standing.panic)
    }

    /// Tokens of a text that stands in JSON, with its escapes; `None` where there is no tokenizer.
    pub fn count_tokens_of_json(&self, escaped: &[u8]) -> Option<u64> {
        let quoted = [b"\"", escaped, b"\""].concat();
        let text: String = serde_json::from_slice(&quoted).ok()?;
        self.shared.reader.count(&text)
    }

    /// The last decisions, newest first.
    pub fn decisions(&self) -> Vec<Arc<Chosen>> {
        self.shared.desk().recent().cloned().collect()
    }

    /// Reads the prompt, admits the request (which may wait its turn), and chooses a worker other than
    /// `avoid`. Dropping the future leaves the line; dropping the placement gives everything back.
    ///
    /// # Errors
    /// If the request cannot be served now, or not at all. No worker has been touched then.
    pub async fn place(&self, ask: &Ask, avoid: &[WorkerId]) -> Result<Placement, Refusal> {
        let placed = self.seek(ask, avoid).await;
        match &placed {
            Ok(held) => self.shared.meters.placed(held.reason()),
            Err(refusal) => self.shared.meters.refused(refusal.cause),
        }
        placed.map(|held| Placement::new(held, ask.answers))
    }

    async fn seek(&self, ask: &Ask, avoid: &[WorkerId]) -> Result<Held, Refusal> {
        let meters = &self.shared.meters;
        let began = Instant::now();
        let (wanted, how) = self.read(ask, avoid).await;
        let read = Instant::now();
        meters.read(how);
        meters.took(Stage::Read, read - began);
        let answer = self.shared.desk().ask(
            &self.fleet.snapshot(),
            &wanted,
            self.shared.at(ask.deadline).since_start,
            self.shared.at(read),
        );
        let decided = Instant::now();
        meters.took(Stage::Desk, decided - read);
        match answer {
            Answer::Booked(booking) => Ok(Held::new(&self.shared, booking)),
            Answer::Wait {
                number,
                word,
                deadline,
            } => {
                let held = self.wait(&wanted, number, word, deadline).await;
                meters.took(Stage::Wait, decided.elapsed());
                held
            }
            Answer::Refused(refusal) => Err(refusal),
        }
    }

    /// What would become of a request now, and why. Nothing is booked.
    pub async fn explain(&self, ask: &Ask) -> Explained {
        let (wanted, how) = self.read(ask, &[]).await;
        let report = self.report();
        let (now, fleet) = (self.shared.now(), self.fleet.snapshot());
        let desk = self.shared.desk();
        let (verdict, pressure, decision) = desk.judge(&fleet, &wanted, now);
        Explained {
            prompt_tokens: wanted.prompt.tokens,
            read: how.word(),
            verdict,
            pressure,
            decision,
            workers: report.workers,
        }
    }

    async fn read(&self, ask: &Ask, avoid: &[WorkerId]) -> (Arc<Wanted>, How) {
        let (prompt, how) = self.shared.reader.read(ask).await;
        let first_key = prompt.keys.first().map_or(0, |key| key.0);
        let wanted = Wanted {
            tenant: Arc::clone(&ask.tenant),
            is_salted: !ask.salt.is_empty(),
            max_tokens: ask.max_tokens,
            answers: ask.answers,
            priority: ask.priority,
            session: ask.session.unwrap_or(first_key),
            prompt,
            avoid: avoid.to_vec(),
        };
        (Arc::new(wanted), how)
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
