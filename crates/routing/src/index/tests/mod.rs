//! The index, by idea; here what its tests share, and what must hold between any two operations.

mod events;
mod forgetting;
mod naive;
mod ranks;
mod tiers;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::books::Books;
use super::*;
use crate::RoutingError;
use crate::keys::{Root, TokenChain};

const SEED: KeySeed = KeySeed(5);
const WORKERS: u16 = 4;

fn root() -> Root {
    Root::new(SEED, "tenant", None)
}

fn keys(tokens: &[u32]) -> Vec<BlockKey> {
    let mut chain = TokenChain::new(root(), 1);
    chain.extend(tokens);
    chain.keys().to_vec()
}

fn index(source: Source, capacity: u32, byte_cap: usize) -> PrefixIndex {
    let mut index = PrefixIndex::new(IndexConfig {
        block_tokens: 1,
        byte_cap,
        ..IndexConfig::new(SEED)
    });
    for worker in 0..WORKERS {
        index.set_worker(WorkerId(worker), source, Some(capacity));
    }
    index
}

/// The engine's name for a block: what it stands for does not matter to the index.
fn engine_hash(path: &[u32]) -> EngineHash {
    path.iter()
        .fold(17, |hash, token| crate::hash::mix(hash ^ u64::from(*token)))
}

/// Everything that must hold between operations.
fn check(index: &PrefixIndex) {
    let mut held: HashMap<CacheId, u64> = HashMap::new();
    let mut ages: HashMap<CacheId, BTreeSet<Age>> = HashMap::new();
    let mut blocks = 0;
    for (id, run) in index.tree.live() {
        assert!(!run.keys.is_empty() && !run.holders.is_empty());
        blocks += run.keys.len();
        assert!(run.holders.is_sorted_by(|a, b| a.cache < b.cache));
        assert_eq!(
            run.holders.iter().map(|h| h.held).max(),
            Some(run.len()),
            "blocks nobody holds"
        );
        for key in &run.keys {
            assert_eq!(index.tree.run_of(*key), Some(id));
        }
        for child in &run.children {
            assert_eq!(index.tree.run(*child).parent, Some(id));
            assert_eq!(index.tree.run(*child).start, run.end());
        }
        for holding in &run.holders {
            assert!(
                holding.held > 0 && holding.confirmed <= holding.held && holding.held <= run.len()
            );
            *held.entry(holding.cache).or_default() += u64::from(holding.held);
            let ages = ages.entry(holding.cache).or_default();
            ages.insert(age(run.start, id, holding));
            if let Some(parent) = run.parent {
                let above = index
                    .tree
                    .run(parent)
                    .holding(holding.cache)
                    .expect("prefix-closed");
                assert_eq!(above.held, index.tree.run(parent).len(), "prefix-closed");
                assert!(
                    above.touched >= holding.touched,
                    "a use of a child is a use of its parent"
                );
            }
        }
    }
    assert_eq!(blocks, index.tree.blocks());
    for (cache, books) in index.caches() {
        assert_eq!(books.held_blocks, held.remove(&cache).unwrap_or(0));
        assert_eq!(books.by_age, ages.remove(&cache).unwrap_or_default());
    }
    assert!(held.is_empty(), "held by caches that are not there");
    assert!(index.stats().bytes <= index.byte_cap);
}

const AT: fn(u64) -> Duration = Duration::from_secs;
const W: WorkerId = WorkerId(0);

fn store(
    index: &mut PrefixIndex,
    path: &[u32],
    from: usize,
    now: Duration,
) -> Result<(), RoutingError> {
    let hashes: Vec<_> = (from + 1..=path.len())
        .map(|end| engine_hash(&path[..end]))
        .collect();
    let parent = (from > 0).then(|| engine_hash(&path[..from]));
    index.stored(
        W,
        Stored {
            parent,
            root: root(),
            hashes: &hashes,
            tokens: &path[from..],
            block_tokens: 1,
            medium: Medium::Resident,
        },
        now,
    )
}
