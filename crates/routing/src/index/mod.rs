//! Which worker holds which prefix.
//!
//! Fed from two sides. *Exactly*, by a worker's KV events ([`PrefixIndex::stored`], [`PrefixIndex::removed`],
//! [`PrefixIndex::cleared`]): its own opaque hashes are only names by which later events refer to blocks; the
//! keys are computed from the token ids. *Predictively*, by what was routed ([`PrefixIndex::expect`]): a worker
//! that was sent a prompt will hold it, until its capacity says that it must have dropped it. For a worker with
//! events, an expectation that is not confirmed in time fades, and a removal ends it at once.
//!
//! Three promises:
//! - **Prefix-closed.** A worker that holds a block holds all before it. A removal in the middle takes what
//!   follows with it: it could not be hit anyway.
//! - **Bounded.** By [`IndexConfig::byte_cap`] over all, and per worker by its capacity. The longest unused goes
//!   first, a prompt's tail before its head, as engines do it.
//! - **Cheap.** A lookup costs a binary search over the prompt and a walk over the runs that make it up, not
//!   over its blocks; a worker is removed in the time of its own runs.
//!
//! ```
//! use std::time::Duration;
//! use forespeak_routing::index::{IndexConfig, PrefixIndex, Source};
//! use forespeak_routing::keys::{KeySeed, Root, TokenChain};
//! use forespeak_routing::WorkerId;
//!
//! let mut index = PrefixIndex::new(IndexConfig { block_tokens: 4, ..IndexConfig::new(KeySeed(1)) });
//! let now = Duration::ZERO;
//! index.set_worker(WorkerId(0), Source::Expectation, Some(1_000));
//!
//! let mut chat = TokenChain::new(Root::new(KeySeed(1), "tenant", None), 4);
//! chat.extend(&[1, 2, 3, 4, 5, 6, 7, 8]);
//! index.expect(WorkerId(0), chat.keys(), now);
//!
//! chat.extend(&[9, 10, 11, 12]);
//! let matches = index.matches(chat.keys(), now);
//! assert_eq!(matches.blocks(WorkerId(0)), 2);
//! assert_eq!(matches.blocks(WorkerId(1)), 0);
//! ```

mod books;
mod cache;
mod events;
mod loadable;
mod matches;
#[cfg(test)]
mod tests;
mod tree;

use std::cmp::Reverse;
use std::time::Duration;

use serde::Serialize;

pub use books::{Source, WorkerKnowledge};
pub use cache::CacheId;
pub use events::{EngineHash, Stored};
pub use loadable::{LoadableWorth, Medium};
pub use matches::Matches;

use crate::hash::HashedMap;
use crate::keys::{BlockKey, DEFAULT_BLOCK_TOKENS, KeySeed};
use crate::worker::WorkerId;
use books::{Age, Books, LOADABLE_BYTES};
use tree::{Holding, RunId, Tree};

/// The most the index takes unless configured: the caches of a few dozen large workers.
pub const DEFAULT_BYTE_CAP: usize = 512 << 20;

/// What a worker is assumed to hold while its capacity is unknown: 300,000 tokens in blocks of 16.
pub const DEFAULT_CAPACITY_BLOCKS: u32 = 18_750;

/// An expected block that a worker with events has not announced after this long was refused, aborted, or its
/// event was lost. Longer than any prefill queue that a request would be sent to.
pub const DEFAULT_CONFIRM_WITHIN: Duration = Duration::from_secs(60);

/// Without events, a prefix unused for this long is not counted on: workers restart, and others use them too.
pub const DEFAULT_IDLE: Duration = Duration::from_secs(30 * 60);

/// How an index is set up.
#[derive(Clone, Debug)]
pub struct IndexConfig {
    /// The secret of the keys, needed to name the blocks in events.
    pub seed: KeySeed,
    /// Tokens per block.
    pub block_tokens: usize,
    /// The most bytes it may take.
    pub byte_cap: usize,
    /// How long an expectation counts for a worker with events.
    pub confirm_within: Duration,
    /// How long an unused expectation counts for a worker without.
    pub idle: Duration,
    /// What loadable blocks are worth.
    pub worth: LoadableWorth,
}

impl IndexConfig {
    /// The defaults with this secret.
    pub fn new(seed: KeySeed) -> Self {
        Self {
            seed,
            block_tokens: DEFAULT_BLOCK_TOKENS,
            byte_cap: DEFAULT_BYTE_CAP,
            confirm_within: DEFAULT_CONFIRM_WITHIN,
            idle: DEFAULT_IDLE,
            worth: LoadableWorth::default(),
        }
    }
}

/// The times of the configuration in the unit of the tree.
pub(crate) struct Limits {
    pub(crate) confirm_within_ms: u64,
    pub(crate) idle_ms: u64,
}

/// Size and losses of an index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IndexStats {
    /// Different blocks known.
    pub blocks: usize,
    /// Runs they lie in.
    pub runs: usize,
    /// What it takes, by a conservative count.
    pub bytes: usize,
    /// Holdings given up because of the byte cap. If this grows, the cap is too small for the fleet.
    pub forgotten_for_space: u64,
}

/// Who holds what; see the module's documentation.
pub struct PrefixIndex {
    seed: KeySeed,
    block_tokens: usize,
    byte_cap: usize,
    limits: Limits,
    tree: Tree,
    /// Of each worker, the books about its caches: one for each of its ranks.
    workers: Vec<Vec<Books>>,
    latest_ms: u64,
    forgotten_for_space: u64,
    worth: LoadableWorth,
    /// Keys of blocks in a store that workers share, and how many of them put it there.
    shared: HashedMap<u64, u16>,
}

impl PrefixIndex {
    /// An index that knows no worker yet.
    pub fn new(config: IndexConfig) -> Self {
        Self {
            seed: config.seed,
            block_tokens: config.block_tokens.max(1),
            byte_cap: config.byte_cap,
            limits: Limits {
                confirm_within_ms: millis(config.confirm_within),
                idle_ms: millis(config.idle),
            },
            tree: Tree::default(),
            workers: Vec::new(),
            latest_ms: 0,
            forgotten_for_space: 0,
            worth: config.worth,
            shared: HashedMap::default(),
        }
    }

    /// Introduces a worker or changes what is known of it; what it holds stays.
    pub fn set_worker(&mut self, worker: WorkerId, source: Source, capacity_blocks: Option<u32>) {
        self.set_ranks(worker, 1, source, capacity_blocks);
    }

    /// The same for a worker of so many ranks, each with a cache of this capacity.
    pub fn set_ranks(
        &mut self,
        worker: WorkerId,
        ranks: u16,
        source: Source,
        capacity_blocks: Option<u32>,
    ) {
        let at = usize::from(worker.0);
        if self.workers.len() <= at {
            self.workers.resize_with(at + 1, Vec::new);
        }
        let ranks = usize::from(ranks.max(1));
        while self.workers[at].len() > ranks {
            self.forget_last_rank(worker);
        }
        let capacity = capacity_blocks.unwrap_or(DEFAULT_CAPACITY_BLOCKS);
        for books in &mut self.workers[at] {
            books.source = source;
            books.capacity_blocks = capacity;
        }
        self.workers[at].resize_with(ranks, || Books::new(source, capacity));
        for cache in self.caches_of(worker) {
            self.forget_beyond_capacity(cache);
        }
    }

    /// Forgets a worker and all it holds, in the time of its own runs.
    pub fn remove_worker(&mut self, worker: WorkerId) {
        while self.forget_last_rank(worker) {}
    }

    /// The worker began anew: all its caches are empty.
    pub fn restarted(&mut self, worker: WorkerId, now: Duration) {
        for cache in self.caches_of(worker) {
            self.cleared(cache, now);
        }
    }

    /// Notes that a worker (or one of its ranks) will hold this prompt, because it was sent there. Unknown ones are ignored.
    pub fn expect(&mut self, cache: impl Into<CacheId>, keys: &[BlockKey], now: Duration) {
        let cache = cache.into();
        if keys.is_empty() || self.books(cache).is_none() {
            return;
        }
        let now = self.advance(now);
        self.hold(cache, None, 0, keys, Trust::Expected, now);
        self.forget_beyond_capacity(cache);
        self.forget_beyond_byte_cap();
    }

    /// How much of this prompt each worker holds.
    pub fn matches(&self, keys: &[BlockKey], now: Duration) -> Matches {
        let mut matches = Matches::default();
        let now = millis(now).max(self.latest_ms);
        let mut depth = self.tree.known(keys) as u32;
        let mut cursor = (depth as usize)
            .checked_sub(1)
            .and_then(|last| self.tree.run_of(*keys.get(last)?));
        while let Some(id) = cursor {
            let run = self.tree.run(id);
            let reached = depth - run.start;
            for holding in &run.holders {
                let Some(books) = self.books(holding.cache) else {
                    continue;
                };
                let visible = books.visible(holding, now, &self.limits).min(reached);
                let is_only = self.is_only(holding.cache);
                let best = &mut matches.found_mut(holding.cache, is_only).blocks;
                // A gap above makes whatever lies below it unreachable.
                if visible < reached || *best == 0 {
                    *best = run.start + visible;
                }
            }
            depth = run.start;
            cursor = run.parent;
        }
        self.credit_loadable(keys, &mut matches);
        for (worker, ranks) in (0u16..).zip(&self.workers) {
            if ranks.len() > 1 {
                matches.take_average(WorkerId(worker), ranks.len() as u32);
            }
        }
        matches
    }

    /// How well a worker's caches are known; `None` for one never introduced.
    pub fn knowledge(&self, worker: WorkerId) -> Option<WorkerKnowledge> {
        let ranks = self.workers.get(usize::from(worker.0))?;
        ranks
            .iter()
            .map(Books::knowledge)
            .reduce(WorkerKnowledge::and)
    }

    /// Size and losses.
    pub fn stats(&self) -> IndexStats {
        IndexStats {
            blocks: self.tree.blocks(),
            runs: self.tree.runs(),
            bytes: self.bytes(),
            forgotten_for_space: self.forgotten_for_space,
        }
    }

    /// Tokens per block.
    pub fn block_tokens(&self) -> usize {
        self.block_tokens
    }

    fn books(&self, cache: CacheId) -> Option<&Books> {
        let ranks = self.workers.get(usize::from(cache.worker.0))?;
        ranks.get(usize::from(cache.rank))
    }

    fn books_mut(&mut self, cache: CacheId) -> Option<&mut Books> {
        books_of(&mut self.workers, cache)
    }

    /// How many caches a worker has; 0 for one never introduced.
    fn ranks(&self, worker: WorkerId) -> usize {
        self.workers.get(usize::from(worker.0)).map_or(0, Vec::len)
    }

    fn is_only(&self, cache: CacheId) -> bool {
        self.ranks(cache.worker) == 1
    }

    fn caches_of(&self, worker: WorkerId) -> impl Iterator<Item = CacheId> + use<> {
        (0..self.ranks(worker) as u16).map(move |rank| CacheId { worker, rank })
    }

    /// All caches, with the books about them.
    fn caches(&self) -> impl Iterator<Item = (CacheId, &Books)> {
        (0u16..).zip(&self.workers).flat_map(|(worker, ranks)| {
            let worker = WorkerId(worker);
            (0u16..)
                .zip(ranks)
                .map(move |(rank, books)| (CacheId { worker, rank }, books))
        })
    }

    /// Forgets the last of a worker's caches; false if there is none.
    fn forget_last_rank(&mut self, worker: WorkerId) -> bool {
        let Some(last) = self.caches_of(worker).last() else {
            return false;
        };
        self.forget_all(last);
        let ranks = self.workers.get_mut(usize::from(worker.0));
        ranks.is_some_and(|ranks| ranks.pop().is_some())
    }

    fn bytes(&self) -> usize {
        self.tree.bytes()
            + self.shared.len() * LOADABLE_BYTES
            + self
                .workers
                .iter()
                .flatten()
                .map(Books::bytes)
                .sum::<usize>()
    }

    /// Time never runs backwards here: the order of forgetting depends on it.
    fn advance(&mut self, now: Duration) -> u64 {
        self.latest_ms = self.latest_ms.max(millis(now));
        self.latest_ms
    }

    /// Gives a cache the blocks `keys` below a place of the tree, and touches all above.
    fn hold(
        &mut self,
        cache: CacheId,
        below: Option<RunId>,
        below_depth: u32,
        keys: &[BlockKey],
        trust: Trust,
        now: u64,
    ) {
        let (last, split) = self.tree.grow(below, below_depth, keys);
        if let Some(tail) = split {
            self.register_split(tail);
        }
        let Self {
            tree,
            workers,
            limits,
            ..
        } = self;
        let Some(books) = books_of(workers, cache) else {
            return;
        };
        let mut depth = below_depth + keys.len() as u32;
        let mut cursor = Some(last);
        while let Some(id) = cursor {
            let run = tree.run_mut(id);
            let reached = depth - run.start;
            let start = run.start;
            let parent = run.parent;
            match run.holding_mut(cache) {
                Some(holding) => {
                    books.by_age.remove(&age(start, id, holding));
                    books.held_blocks += u64::from(reached.saturating_sub(holding.held));
                    holding.renew(reached, trust, now, limits);
                    books.by_age.insert(age(start, id, holding));
                }
                None => {
                    let holding = Holding::new(cache, reached, trust, now);
                    books.held_blocks += u64::from(reached);
                    books.by_age.insert(age(start, id, &holding));
                    tree.insert_holding(id, holding);
                }
            }
            depth = start;
            cursor = parent;
        }
    }

    /// A split gave the holders of a run a second one: enter it into their order of age.
    fn register_split(&mut self, tail: RunId) {
        let run = self.tree.run(tail);
        for holding in &run.holders {
            if let Some(books) = books_of(&mut self.workers, holding.cache) {
                books.by_age.insert(age(run.start, tail, holding));
            }
        }
    }

    /// Takes from a cache everything beyond the first `keep` blocks of a run.
    fn cut(&mut self, cache: CacheId, run: RunId, keep: u32) {
        let mut pending = vec![(run, keep)];
        let mut touched = Vec::new();
        while let Some((id, keep)) = pending.pop() {
            let run = self.tree.run(id);
            let Some(holding) = run.holding(cache).copied() else {
                continue;
            };
            if holding.held <= keep {
                continue;
            }
            if holding.held == run.len() {
                pending.extend(run.children.iter().map(|child| (*child, 0)));
            }
            self.shorten(cache, id, keep);
            touched.push(id);
        }
        // Parents were met before their children; blocks are forgotten from the tails.
        for id in touched.into_iter().rev() {
            self.tree.trim(id);
        }
    }

    /// Leaves a cache the first `keep` blocks of a run; says nothing about runs below.
    fn shorten(&mut self, cache: CacheId, id: RunId, keep: u32) {
        let Some(books) = books_of(&mut self.workers, cache) else {
            return;
        };
        let run = self.tree.run_mut(id);
        let start = run.start;
        let Some(holding) = run.holding_mut(cache) else {
            return;
        };
        books.held_blocks -= u64::from(holding.held.saturating_sub(keep));
        if keep == 0 {
            books.by_age.remove(&age(start, id, holding));
            self.tree.remove_holding(id, cache);
        } else {
            holding.held = holding.held.min(keep);
            holding.confirmed = holding.confirmed.min(keep);
        }
    }

    /// Takes up to `blocks` of the cache's longest unused run, from its tail. Nothing it holds can lie
    /// below: a use of a child is a use of its parent, and of equally old runs the deeper comes first.
    fn forget_oldest(&mut self, cache: CacheId, blocks: u64) -> bool {
        let Some((_, _, id)) = self
            .books(cache)
            .and_then(|books| books.by_age.first().copied())
        else {
            return false;
        };
        let held = self
            .tree
            .run(id)
            .holding(cache)
            .map_or(0, |holding| holding.held);
        let keep = u64::from(held).saturating_sub(blocks) as u32;
        self.shorten(cache, id, keep);
        self.tree.trim(id);
        true
    }

    fn forget_all(&mut self, cache: CacheId) {
        while self.forget_oldest(cache, u64::MAX) {}
        if let Some(books) = self.books_mut(cache) {
            debug_assert_eq!(books.held_blocks, 0);
            let shared = books.forget_names();
            self.unshare(&shared);
        }
    }

    /// Without events, what exceeds the worker's capacity has been evicted there. With events the worker says
    /// so itself; expectations on top of a full cache are bounded all the same.
    fn forget_beyond_capacity(&mut self, cache: CacheId) {
        loop {
            let Some(books) = self.books(cache) else {
                return;
            };
            let limit = match books.source {
                Source::Expectation => u64::from(books.capacity_blocks),
                Source::Events => 2 * u64::from(books.capacity_blocks),
            };
            let excess = books.held_blocks.saturating_sub(limit);
            if excess == 0 || !self.forget_oldest(cache, excess) {
                return;
            }
        }
    }

    fn forget_beyond_byte_cap(&mut self) {
        while self.bytes() > self.byte_cap {
            let oldest = self
                .caches()
                .filter_map(|(cache, books)| Some((*books.by_age.first()?, cache)))
                .min();
            self.forgotten_for_space += 1;
            match oldest {
                Some((_, cache)) => {
                    self.forget_oldest(cache, u64::MAX);
                }
                None => {
                    // Only names of blocks are left: drop those of the most talkative cache.
                    let books = self
                        .workers
                        .iter_mut()
                        .flatten()
                        .max_by_key(|books| books.engine.len());
                    match books {
                        Some(books) if !books.engine.is_empty() => {
                            let shared = books.forget_names();
                            self.unshare(&shared);
                        }
                        _ => return,
                    }
                }
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Trust {
    Expected,
    Announced,
}

impl Holding {
    fn new(cache: CacheId, reached: u32, trust: Trust, now: u64) -> Self {
        let confirmed = if trust == Trust::Announced {
            reached
        } else {
            0
        };
        Self {
            cache,
            held: reached,
            confirmed,
            touched: now,
            promised: now,
        }
    }

    fn renew(&mut self, reached: u32, trust: Trust, now: u64, limits: &Limits) {
        let promise_broken = now > self.promised.saturating_add(limits.confirm_within_ms);
        match trust {
            Trust::Announced => {
                if reached > self.confirmed {
                    self.confirmed = reached;
                    self.promised = now;
                }
            }
            // A promise runs from when it was first made: repeating it must not keep alive what the worker
            // never confirms.
            Trust::Expected if self.held == self.confirmed || promise_broken => self.promised = now,
            Trust::Expected => {}
        }
        self.held = self.held.max(reached);
        self.touched = now;
    }
}

fn books_of(workers: &mut [Vec<Books>], cache: CacheId) -> Option<&mut Books> {
    let ranks = workers.get_mut(usize::from(cache.worker.0))?;
    ranks.get_mut(usize::from(cache.rank))
}

fn age(start: u32, id: RunId, holding: &Holding) -> Age {
    (holding.touched, Reverse(start), id)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
