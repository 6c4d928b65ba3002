//! The two threads between the step loop and the tiers: one reads, one writes. The step loop only ever
//! puts something into a bounded queue, and hears of the outcome through the engine's door.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::costs::LoadCosts;
use super::key::{Identity, StoreKey};
use super::sealed::Sealed;
use super::{BlockStore, Sharing, Tier};
use crate::blocks::BlockHash;
use crate::door::Message;
use crate::metrics::{Rejection, StoreMetrics};
use crate::scheduler::SeqId;

/// Prompts that wait for the reading thread; a later one is computed.
const MAX_ASKS: usize = 64;

/// Bytes that wait for the writing thread; blocks beyond are not kept. A second of prefill, or more.
const MAX_OFFERED_BYTES: usize = 128 << 20;

/// And their number, however small they are.
const MAX_OFFERS: usize = 4096;

/// Blocks that are written in one go.
const WRITE_BATCH: usize = 32;

/// How long an engine that ends goes on writing what was offered before.
const FLUSH_FOR: Duration = Duration::from_secs(2);

/// A prompt's question for its blocks.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) id: SeqId,
    /// Place in the chain of the first block asked for.
    pub(crate) from: usize,
    pub(crate) names: Vec<BlockHash>,
    /// What computing a token takes, if that is known.
    pub(crate) token: Option<Duration>,
    /// After this nobody waits for the answer.
    pub(crate) deadline: Instant,
}

/// The answer: keys and values, checked, of as many blocks as were found in a row.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) id: SeqId,
    pub(crate) from: usize,
    pub(crate) names: Vec<BlockHash>,
    pub(crate) blocks: Vec<Bytes>,
    pub(crate) took: Duration,
}

/// Blocks can be loaded from a tier, or no longer.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) tier: Tier,
    pub(crate) kept: Vec<BlockHash>,
    pub(crate) dropped: Vec<BlockHash>,
}

/// Why a block is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Computed,
    Evicted,
}

#[derive(Debug)]
struct Offer {
    origin: Origin,
    key: StoreKey,
    sealed: Sealed,
}

/// The step loop's end of both threads.
pub(crate) struct Clerk {
    identity: Identity,
    block_bytes: usize,
    is_shared: bool,
    asks: Option<SyncSender<Ask>>,
    offers: Option<SyncSender<Offer>>,
    offered_bytes: Arc<AtomicUsize>,
    closing: Arc<AtomicBool>,
    metrics: StoreMetrics,
    threads: Vec<JoinHandle<()>>,
}

impl Clerk {
    /// Starts both threads; what they find comes back through `door`.
    pub(crate) fn start(
        sharing: Sharing,
        block_bytes: usize,
        metrics: &StoreMetrics,
        door: &Sender<Message>,
    ) -> std::io::Result<Self> {
        let (asks, asked) = sync_channel(MAX_ASKS);
        let (offers, offered) = sync_channel(MAX_OFFERS);
        let offered_bytes = Arc::new(AtomicUsize::new(0));
        let closing = Arc::new(AtomicBool::new(false));
        let reader = Reader {
            identity: sharing.identity,
            block_bytes,
            tiers: sharing.tiers.clone(),
            costs: LoadCosts::default(),
            metrics: metrics.clone(),
            door: door.clone(),
        };
        let writer = Writer {
            identity: sharing.identity,
            tiers: sharing.tiers.clone(),
            offered_bytes: Arc::clone(&offered_bytes),
            closing: Arc::clone(&closing),
            metrics: metrics.clone(),
            door: door.clone(),
        };
        let read = thread("kv-load", move || reader.run(&asked))?;
        let write = thread("kv-keep", move || writer.run(&offered))?;
        Ok(Self {
            identity: sharing.identity,
            block_bytes,
            is_shared: sharing.tiers.iter().any(|t| t.tier() == Tier::Shared),
            asks: Some(asks),
            offers: Some(offers),
            offered_bytes,
            closing,
            metrics: metrics.clone(),
            threads: vec![read, write],
        })
    }

    /// Whether blocks are wanted as soon as they are computed.
    pub(crate) fn wants_computed(&self) -> bool {
        self.is_shared
    }

    /// Asks for blocks; `false` if nobody has time for it.
    pub(crate) fn ask(&self, ask: Ask) -> bool {
        let asks = self.asks.as_ref();
        asks.is_some_and(|asks| asks.try_send(ask).is_ok())
    }

    /// Offers a block that was just computed.
    pub(crate) fn offer_computed(&self, name: BlockHash, export: impl FnOnce(&mut Vec<u8>)) {
        self.offer(Origin::Computed, name, export);
    }

    /// Offers a block that has to make room.
    pub(crate) fn offer_evicted(&self, name: BlockHash, export: impl FnOnce(&mut Vec<u8>)) {
        self.offer(Origin::Evicted, name, export);
    }

    fn offer(&self, origin: Origin, name: BlockHash, export: impl FnOnce(&mut Vec<u8>)) {
        self.metrics.offered();
        let key = self.identity.key(name);
        let queued = self.offered_bytes.load(Ordering::Relaxed);
        let Some(offers) = self.offers.as_ref() else {
            return;
        };
        if queued + self.block_bytes > MAX_OFFERED_BYTES {
            self.metrics.rejected(Rejection::QueueFull, 1);
            return;
        }
        let mut sealed = Sealed::begin(&key, self.block_bytes);
        export(sealed.payload());
        let bytes = sealed.len();
        self.offered_bytes.fetch_add(bytes, Ordering::Relaxed);
        let offer = Offer {
            origin,
            key,
            sealed,
        };
        if offers.try_send(offer).is_err() {
            self.offered_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.metrics.rejected(Rejection::QueueFull, 1);
        }
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
        self.asks = None;
        self.offers = None;
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the block store ended by a panic");
            }
        }
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
}

struct Reader {
    identity: Identity,
    block_bytes: usize,
    tiers: Vec<Arc<dyn BlockStore>>,
    costs: LoadCosts,
    metrics: StoreMetrics,
    door: Sender<Message>,
}

impl Reader {
    fn run(mut self, asked: &Receiver<Ask>) {
        while let Ok(ask) = asked.recv() {
            let began = Instant::now();
            let blocks = if began < ask.deadline {
                self.find(&ask)
            } else {
                Vec::new()
            };
            let loaded = Loaded {
                id: ask.id,
                from: ask.from,
                names: ask.names,
                blocks,
                took: began.elapsed(),
            };
            if self.door.send(Message::Loaded(loaded)).is_err() {
                return;
            }
        }
    }

    /// Near to far: each tier continues where the one before it ended.
    fn find(&mut self, ask: &Ask) -> Vec<Bytes> {
        let keys: Vec<StoreKey> = ask.names.iter().map(|&n| self.identity.key(n)).collect();
        let mut found: Vec<Bytes> = Vec::new();
        for index in 0..self.tiers.len() {
            let Some(rest) = keys.get(found.len()..).filter(|rest| !rest.is_empty()) else {
                break;
            };
            let store = Arc::clone(&self.tiers[index]);
            let more = self.load(store.as_ref(), rest, ask);
            found.extend(more);
        }
        found
    }

    fn load(&mut self, store: &dyn BlockStore, keys: &[StoreKey], ask: &Ask) -> Vec<Bytes> {
        let began = Instant::now();
        let tier = store.tier();
        let there = store.leading(keys, ask.deadline).min(keys.len());
        self.metrics.looked_up(tier, there > 0);
        if there == 0 {
            return Vec::new();
        }
        if !self.costs.is_worth(tier, there, ask.token) {
            self.metrics.rejected(Rejection::Slow, there);
            return Vec::new();
        }
        let mut good = Vec::with_capacity(there);
        for (key, sealed) in keys.iter().zip(store.read(&keys[..there], ask.deadline)) {
            match Sealed::open(&self.identity, key, self.block_bytes, &sealed) {
                Ok(block) => good.push(block),
                Err(flaw) => {
                    tracing::warn!(tier = tier.name(), %flaw, "a stored KV block is computed again");
                    self.metrics.rejected(Rejection::Flaw(flaw), 1);
                    store.discard(key);
                    let _ = self.door.send(Message::Moved(Moved {
                        tier,
                        kept: Vec::new(),
                        dropped: vec![key.block()],
                    }));
                    break;
                }
            }
        }
        let took = began.elapsed();
        // A tier that gave nothing in all that time is as slow as that for one block.
        self.costs.note(tier, good.len().max(1), took);
        self.metrics
            .loaded(tier, good.len(), good.iter().map(Bytes::len).sum(), took);
        good
    }
}

struct Writer {
    identity: Identity,
    tiers: Vec<Arc<dyn BlockStore>>,
    offered_bytes: Arc<AtomicUsize>,
    closing: Arc<AtomicBool>,
    metrics: StoreMetrics,
    door: Sender<Message>,
}

impl Writer {
    fn run(self, offered: &Receiver<Offer>) {
        let mut ends = None;
        while let Ok(first) = offered.recv() {
            if self.closing.load(Ordering::Relaxed) {
                let end = *ends.get_or_insert_with(|| Instant::now() + FLUSH_FOR);
                if Instant::now() > end {
                    return;
                }
            }
            let more = offered.try_iter().take(WRITE_BATCH - 1);
            let (mut computed, mut evicted) = (Vec::new(), Vec::new());
            for offer in std::iter::once(first).chain(more) {
                let bytes = offer.sealed.len();
                let block = (offer.key, offer.sealed.finish(&self.identity));
                match offer.origin {
                    Origin::Computed => computed.push(block),
                    Origin::Evicted => evicted.push(block),
                }
                self.offered_bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
            self.share(computed);
            self.keep(evicted);
        }
    }

    /// Puts computed blocks where others find them.
    fn share(&self, blocks: Vec<(StoreKey, Bytes)>) {
        for store in self.tiers.iter().filter(|t| t.tier() == Tier::Shared) {
            self.write(store.as_ref(), blocks.clone());
        }
    }

    /// Puts evicted blocks into the nearest tier; what falls out of it goes to the next. Where this
    /// instance has no tier of its own, the shared one takes what it may have lost since.
    fn keep(&self, mut blocks: Vec<(StoreKey, Bytes)>) {
        let mut own = self
            .tiers
            .iter()
            .filter(|t| t.tier() != Tier::Shared)
            .peekable();
        if own.peek().is_none() {
            self.share(blocks);
            return;
        }
        for store in own {
            let fallen = self.write(store.as_ref(), blocks);
            blocks = fallen;
        }
    }

    /// Gives what had to go for it, as far as its contents are known.
    fn write(
        &self,
        store: &dyn BlockStore,
        blocks: Vec<(StoreKey, Bytes)>,
    ) -> Vec<(StoreKey, Bytes)> {
        if blocks.is_empty() {
            return blocks;
        }
        let tier = store.tier();
        let size = blocks.first().map_or(0, |(_, sealed)| sealed.len());
        let written = store.write(blocks);
        self.metrics
            .stored(tier, written.kept.len(), written.kept.len() * size);
        self.metrics.rejected(Rejection::Unkept, written.failed);
        if !written.kept.is_empty() || !written.dropped.is_empty() {
            // An engine that has ended tells nobody.
            let _ = self.door.send(Message::Moved(Moved {
                tier,
                kept: written.kept.iter().map(StoreKey::block).collect(),
                dropped: written.dropped.iter().map(|(key, _)| key.block()).collect(),
            }));
        }
        written
            .dropped
            .into_iter()
            .filter_map(|(key, sealed)| Some((key, sealed?)))
            .collect()
    }
}
