//! Listens to one publisher: the thin edge around [`super::sequence`].

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::kv_events::{
    END_OF_REPLAY, MAX_PAYLOAD_BYTES, decode_batch, parse_sequence_frame, sequence_frame,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::sequence::{Live, Lost, Mark, Replayed, Sequence};
use super::zmtp::{Endpoint, Kind, Socket, ZmtpError};
use super::{EventCounters, KvChange, KvUpdate};
use crate::backoff::{self, Backoff};
use routing::WorkerId;

/// The most messages of one replay: a hundred times vLLM's default buffer. A publisher that never ends
/// its replay must not keep us from its live messages.
const MAX_REPLAYED: usize = 1_000_000;

/// Losses are counted one by one but logged no more often than this.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Time-outs of a subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventsConfig {
    /// For a connection, its handshake included.
    pub connect_timeout: Duration,
    /// For each message of a replay.
    pub replay_timeout: Duration,
    /// Silence after which a replay asks whether anything was missed: a lost last message would
    /// otherwise show only when the next one comes.
    pub audit_after: Duration,
    /// Between attempts to connect.
    pub reconnect: Backoff,
}

impl Default for EventsConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(2),
            replay_timeout: Duration::from_secs(5),
            audit_after: Duration::from_secs(5),
            reconnect: Backoff {
                first: Duration::from_millis(200),
                longest: Duration::from_secs(5),
            },
        }
    }
}

/// Whom to listen to.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) worker: WorkerId,
    pub(crate) name: String,
    pub(crate) rank: u32,
    pub(crate) events: Endpoint,
    pub(crate) replay: Option<Endpoint>,
    pub(crate) topic: String,
}

/// Why listening ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Connection(#[from] ZmtpError),
    #[error("nobody wants the events any more")]
    NobodyListens,
}

/// Listens to one publisher for as long as it is polled.
#[derive(Debug)]
pub(crate) struct Subscriber {
    source: Source,
    config: EventsConfig,
    sequence: Sequence,
    updates: mpsc::Sender<KvUpdate>,
    counters: Arc<EventCounters>,
    /// Attempts to connect that failed in a row.
    failures: u32,
    last_logged: Option<Instant>,
}

impl Subscriber {
    pub(crate) fn new(
        source: Source,
        config: EventsConfig,
        updates: mpsc::Sender<KvUpdate>,
        counters: Arc<EventCounters>,
    ) -> Self {
        Self {
            source,
            config,
            sequence: Sequence::default(),
            updates,
            counters,
            failures: 0,
            last_logged: None,
        }
    }

    /// Runs until nobody wants the updates any more; drop the future to stop earlier.
    pub(crate) async fn run(mut self) {
        loop {
            match self.listen().await {
                Ok(()) | Err(Ended::NobodyListens) => return,
                Err(Ended::Connection(error)) => {
                    self.failures = self.failures.saturating_add(1);
                    self.log_disconnect(&error);
                }
            }
            let delay = self
                .config
                .reconnect
                .delay(self.failures, backoff::chance());
            sleep(delay).await;
        }
    }

    /// One connection from beginning to end.
    async fn listen(&mut self) -> Result<(), Ended> {
        let within = self.config.connect_timeout;
        let mut socket =
            Socket::connect(&self.source.events, Kind::Sub, MAX_PAYLOAD_BYTES, within).await?;
        socket.subscribe(&self.source.topic).await?;
        self.failures = 0;
        let counters = Arc::clone(&self.counters);
        let _connected = counters.connection();
        tracing::info!(
            worker = %self.source.name,
            rank = self.source.rank,
            endpoint = %self.source.events,
            "listening to kv events"
        );
        self.catch_up().await?;
        let mut audited = false;
        loop {
            let silence = self.config.audit_after;
            match timeout(silence, socket.receive()).await {
                Ok(message) => {
                    audited = false;
                    self.take_live(&message?).await?;
                }
                Err(_elapsed) if !audited => {
                    audited = true;
                    self.catch_up().await?;
                }
                Err(_elapsed) => {}
            }
        }
    }

    async fn take_live(&mut self, message: &[Bytes]) -> Result<(), Ended> {
        let Some((mark, payload)) = read_message(message) else {
            return self.forget(Lost::Unreadable).await;
        };
        let can_catch_up = self.source.replay.is_some();
        let mut verdict = self.sequence.live(mark, can_catch_up);
        if verdict == Live::CatchUp {
            self.catch_up().await?;
            verdict = self.sequence.live(mark, false);
        }
        match verdict {
            Live::Skip | Live::CatchUp => Ok(()),
            Live::Apply => self.apply(payload).await,
            Live::ForgetThenApply(lost) => {
                self.forget(lost).await?;
                self.apply(payload).await
            }
        }
    }

    /// Takes in what was missed, as far as the publisher still has it. Failing to is not the end: the
    /// next live message will show whether anything is missing.
    async fn catch_up(&mut self) -> Result<(), Ended> {
        let Some(endpoint) = self.source.replay.clone() else {
            return Ok(());
        };
        let mut again = true;
        while again {
            self.counters.replay();
            again = match self.replay(&endpoint).await {
                Ok(again) => again,
                Err(Ended::Connection(error)) => {
                    self.counters.replay_failed();
                    tracing::warn!(
                        worker = %self.source.name,
                        rank = self.source.rank,
                        endpoint = %endpoint,
                        %error,
                        "cannot replay kv events: what was missed stays unknown"
                    );
                    false
                }
                Err(ended @ Ended::NobodyListens) => return Err(ended),
            };
        }
        Ok(())
    }

    /// One replay. True if it has to be asked for again, from the beginning.
    async fn replay(&mut self, endpoint: &Endpoint) -> Result<bool, Ended> {
        let within = self.config.connect_timeout;
        let mut socket = Socket::connect(endpoint, Kind::Dealer, MAX_PAYLOAD_BYTES, within).await?;
        let start = self.sequence.begin_replay();
        socket.send(&[b"", &sequence_frame(start)]).await?;
        for _ in 0..MAX_REPLAYED {
            let message = timeout(self.config.replay_timeout, socket.receive())
                .await
                .map_err(|_elapsed| ZmtpError::TimedOut)??;
            let Some((mark, payload)) = read_message(&message) else {
                self.forget(Lost::Unreadable).await?;
                continue;
            };
            if mark.number == END_OF_REPLAY {
                let again = self.sequence.replay_ended();
                if again {
                    self.forget(Lost::Restart).await?;
                }
                return Ok(again);
            }
            match self.sequence.replayed(mark) {
                Replayed::Skip => {}
                Replayed::Apply => self.apply(payload).await?,
                Replayed::ForgetThenApply(lost) => {
                    self.forget(lost).await?;
                    self.apply(payload).await?;
                }
                Replayed::StartOver(lost) => {
                    self.forget(lost).await?;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    async fn apply(&mut self, payload: &Bytes) -> Result<(), Ended> {
        match decode_batch(payload) {
            Ok(batch) => {
                self.counters.batch();
                let rank = batch.data_parallel_rank.unwrap_or(self.source.rank);
                self.tell(rank, KvChange::Batch(batch)).await
            }
            Err(error) => {
                tracing::debug!(worker = %self.source.name, %error, "unreadable kv event");
                self.forget(Lost::Unreadable).await
            }
        }
    }

    async fn forget(&mut self, lost: Lost) -> Result<(), Ended> {
        self.counters.lost(lost);
        if self.may_log() {
            tracing::warn!(
                worker = %self.source.name,
                rank = self.source.rank,
                cause = lost.word(),
                missed = lost.messages(),
                "kv events are missing: exact knowledge of this worker's cache is dropped and prefix \
                 routing to it is approximate until it is rebuilt"
            );
        }
        self.tell(self.source.rank, KvChange::Forget(lost)).await
    }

    async fn tell(&self, rank: u32, change: KvChange) -> Result<(), Ended> {
        let worker = self.source.worker;
        let update = KvUpdate {
            worker,
            rank,
            change,
        };
        self.updates
            .send(update)
            .await
            .map_err(|_closed| Ended::NobodyListens)
    }

    fn log_disconnect(&mut self, error: &ZmtpError) {
        if self.failures <= 1 || self.may_log() {
            tracing::warn!(
                worker = %self.source.name,
                rank = self.source.rank,
                endpoint = %self.source.events,
                %error,
                failures = self.failures,
                "not listening to kv events; connecting again"
            );
        }
    }

    fn may_log(&mut self) -> bool {
        let now = Instant::now();
        let due = self
            .last_logged
            .is_none_or(|last| now.duration_since(last) >= LOG_EVERY);
        if due {
            self.last_logged = Some(now);
        }
        due
    }
}

/// Number and payload stand last, after the topic and, in a replay, an empty frame; old publishers leave
/// the topic out of a replay.
fn read_message(frames: &[Bytes]) -> Option<(Mark, &Bytes)> {
    let [.., number, payload] = frames else {
        return None;
    };
    let mut hasher = DefaultHasher::new();
    hasher.write(payload);
    let mark = Mark {
        number: parse_sequence_frame(number)?,
        digest: hasher.finish(),
    };
    Some((mark, payload))
}
