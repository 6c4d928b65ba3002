//! The index against a naive model, and its books against themselves.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use proptest::prelude::*;

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

#[derive(Clone, Debug)]
enum Op {
    Expect(u16, Vec<u32>),
    Stored(u16, Vec<u32>, usize),
    Removed(u16, Vec<u32>),
    Cleared(u16),
    Remove(u16),
    Look(Vec<u32>),
}

/// Short paths over few tokens, so that they share, part and nest.
fn path() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(0u32..3, 1..9)
}

fn op() -> impl Strategy<Value = Op> {
    let worker = 0..WORKERS;
    prop_oneof![
        4 => (worker.clone(), path()).prop_map(|(w, p)| Op::Expect(w, p)),
        4 => (worker.clone(), path(), 0usize..8).prop_map(|(w, p, from)| Op::Stored(w, p, from)),
        4 => (worker.clone(), path()).prop_map(|(w, p)| Op::Removed(w, p)),
        1 => worker.clone().prop_map(Op::Cleared),
        1 => worker.prop_map(Op::Remove),
        4 => path().prop_map(Op::Look),
    ]
}

/// What a worker holds, as plainly as it can be written down.
#[derive(Default)]
struct Naive {
    held: BTreeSet<Vec<u32>>,
    confirmed: BTreeSet<Vec<u32>>,
    announced: HashMap<EngineHash, Vec<u32>>,
}

impl Naive {
    fn hold(&mut self, path: &[u32]) {
        self.held
            .extend((1..=path.len()).map(|end| path[..end].to_vec()));
    }

    fn store(&mut self, path: &[u32], from: usize) -> bool {
        let parent = &path[..from];
        let placed = from == 0
            || (self.announced.contains_key(&engine_hash(parent))
                && self.confirmed.contains(parent));
        if placed {
            self.hold(path);
            for end in from + 1..=path.len() {
                self.confirmed.insert(path[..end].to_vec());
                self.announced
                    .insert(engine_hash(&path[..end]), path[..end].to_vec());
            }
        }
        placed
    }

    fn remove(&mut self, hash: EngineHash) {
        if let Some(path) = self.announced.remove(&hash) {
            self.held.retain(|held| !held.starts_with(&path));
            self.confirmed.retain(|held| !held.starts_with(&path));
        }
    }

    fn matched(&self, path: &[u32]) -> u32 {
        (1..=path.len())
            .take_while(|end| self.held.contains(&path[..*end]))
            .count() as u32
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_index_agrees_with_the_naive_model(ops in proptest::collection::vec(op(), 1..80)) {
        let mut index = index(Source::Events, 100_000, DEFAULT_BYTE_CAP);
        let mut naive: BTreeMap<u16, Naive> = BTreeMap::new();
        for (tick, op) in ops.into_iter().enumerate() {
            let now = Duration::from_millis(tick as u64);
            match op {
                Op::Expect(w, path) => {
                    index.expect(WorkerId(w), &keys(&path), now);
                    naive.entry(w).or_default().hold(&path);
                }
                Op::Stored(w, path, from) => {
                    let from = from.min(path.len() - 1);
                    let hashes: Vec<_> = (from + 1..=path.len()).map(|end| engine_hash(&path[..end])).collect();
                    let event = Stored {
                        parent: (from > 0).then(|| engine_hash(&path[..from])),
                        root: root(),
                        hashes: &hashes,
                        tokens: &path[from..],
                        block_tokens: 1,
                        medium: Medium::Resident,
                    };
                    let placed = index.stored(WorkerId(w), event, now).is_ok();
                    prop_assert_eq!(placed, naive.entry(w).or_default().store(&path, from));
                }
                Op::Removed(w, path) => {
                    index.removed(WorkerId(w), &[engine_hash(&path)], Medium::Resident, now);
                    naive.entry(w).or_default().remove(engine_hash(&path));
                }
                Op::Cleared(w) => {
                    index.cleared(WorkerId(w), now);
                    naive.remove(&w);
                }
                Op::Remove(w) => {
                    index.remove_worker(WorkerId(w));
                    index.set_worker(WorkerId(w), Source::Events, Some(100_000));
                    naive.remove(&w);
                }
                Op::Look(path) => {
                    let matches = index.matches(&keys(&path), now);
                    for w in 0..WORKERS {
                        let expected = naive.get(&w).map_or(0, |model| model.matched(&path));
                        prop_assert_eq!(matches.blocks(WorkerId(w)), expected, "worker {} on {:?}", w, &path);
                    }
                }
            }
            check(&index);
        }
        for w in 0..WORKERS {
            index.remove_worker(WorkerId(w));
        }
        check(&index);
        prop_assert_eq!(index.tree.runs(), 0);
        prop_assert_eq!(index.tree.blocks(), 0);
    }

    #[test]
    fn a_full_worker_forgets_without_breaking_its_books(
        paths in proptest::collection::vec((0..WORKERS, path()), 1..60),
        capacity in 1u32..12,
    ) {
        let mut index = index(Source::Expectation, capacity, DEFAULT_BYTE_CAP);
        for (tick, (w, path)) in paths.into_iter().enumerate() {
            let now = Duration::from_millis(tick as u64);
            index.expect(WorkerId(w), &keys(&path), now);
            check(&index);
            prop_assert!(index.knowledge(WorkerId(w)).unwrap().held_blocks <= u64::from(capacity));
            let fits = (path.len() as u32).min(capacity);
            prop_assert_eq!(index.matches(&keys(&path), now).blocks(WorkerId(w)), fits, "the newest is kept");
        }
    }

    #[test]
    fn the_byte_cap_holds_after_every_operation(
        paths in proptest::collection::vec((0..WORKERS, path(), any::<bool>()), 1..60),
        room in 0usize..3_000,
    ) {
        let fixed = 4 * std::mem::size_of::<Books>();
        let mut index = index(Source::Events, 100_000, fixed + room);
        for (tick, (w, path, exact)) in paths.into_iter().enumerate() {
            let now = Duration::from_millis(tick as u64);
            if exact {
                let hashes: Vec<_> = (1..=path.len()).map(|end| engine_hash(&path[..end])).collect();
                let event = Stored { parent: None, root: root(), hashes: &hashes, tokens: &path, block_tokens: 1, medium: Medium::Resident };
                index.stored(WorkerId(w), event, now).unwrap();
            } else {
                index.expect(WorkerId(w), &keys(&path), now);
            }
            check(&index);
        }
    }
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

#[test]
fn an_expectation_that_is_never_confirmed_fades_even_if_it_is_repeated() {
    let mut index = index(Source::Events, 1_000, DEFAULT_BYTE_CAP);
    let prompt = keys(&[1, 2, 3]);
    for second in [0, 20, 40] {
        index.expect(W, &prompt, AT(second));
    }
    assert_eq!(index.matches(&prompt, AT(60)).blocks(W), 3);
    assert_eq!(index.matches(&prompt, AT(61)).blocks(W), 0);
}

#[test]
fn what_a_worker_confirmed_does_not_fade() {
    let mut index = index(Source::Events, 1_000, DEFAULT_BYTE_CAP);
    index.expect(W, &keys(&[1, 2, 3]), AT(0));
    store(&mut index, &[1, 2], 0, AT(1)).unwrap();
    assert_eq!(index.matches(&keys(&[1, 2, 3]), AT(10)).blocks(W), 3);
    assert_eq!(index.matches(&keys(&[1, 2, 3]), AT(10_000)).blocks(W), 2);
}

#[test]
fn without_events_an_unused_prefix_is_not_counted_on_for_ever() {
    let mut index = index(Source::Expectation, 1_000, DEFAULT_BYTE_CAP);
    index.expect(W, &keys(&[1, 2, 3]), AT(0));
    assert_eq!(index.matches(&keys(&[1, 2, 3]), AT(1_800)).blocks(W), 3);
    assert_eq!(index.matches(&keys(&[1, 2, 3]), AT(1_801)).blocks(W), 0);
}

#[test]
fn the_longest_unused_prompt_goes_first_and_from_its_tail() {
    let mut index = index(Source::Expectation, 6, DEFAULT_BYTE_CAP);
    index.expect(W, &keys(&[1, 1, 1]), AT(0));
    index.expect(W, &keys(&[2, 2, 2]), AT(1));
    index.expect(W, &keys(&[3, 3]), AT(2));
    assert_eq!(index.matches(&keys(&[1, 1, 1]), AT(3)).blocks(W), 1);
    assert_eq!(index.matches(&keys(&[2, 2, 2]), AT(3)).blocks(W), 3);
}

#[test]
fn an_engine_block_may_span_several_of_ours() {
    let mut index = index(Source::Events, 1_000, DEFAULT_BYTE_CAP);
    let event = Stored {
        parent: None,
        root: root(),
        hashes: &[7, 8],
        tokens: &[1, 2, 3, 4],
        block_tokens: 2,
        medium: Medium::Resident,
    };
    index.stored(W, event, AT(0)).unwrap();
    assert_eq!(index.matches(&keys(&[1, 2, 3, 4]), AT(0)).blocks(W), 4);
    index.removed(W, &[8], Medium::Resident, AT(0));
    assert_eq!(index.matches(&keys(&[1, 2, 3, 4]), AT(0)).blocks(W), 2);
    check(&index);
}

#[test]
fn events_that_contradict_themselves_are_refused() {
    let mut index = index(Source::Events, 1_000, DEFAULT_BYTE_CAP);
    let event = |tokens, block_tokens| Stored {
        parent: None,
        root: root(),
        hashes: &[7],
        tokens,
        block_tokens,
        medium: Medium::Resident,
    };
    assert!(matches!(
        index.stored(W, event(&[1, 2, 3], 2), AT(0)),
        Err(RoutingError::MalformedEvent { .. })
    ));
    assert!(matches!(
        index.stored(W, event(&[], 0), AT(0)),
        Err(RoutingError::MalformedEvent { .. })
    ));
    let mut coarse = PrefixIndex::new(IndexConfig {
        block_tokens: 16,
        ..IndexConfig::new(SEED)
    });
    coarse.set_worker(W, Source::Events, None);
    assert!(matches!(
        coarse.stored(W, event(&[1, 2], 2), AT(0)),
        Err(RoutingError::BlockSize {
            engine: 2,
            index: 16
        })
    ));
    assert_eq!(
        coarse.stored(WorkerId(9), event(&[0; 16], 16), AT(0)),
        Err(RoutingError::UnknownWorker)
    );
}

#[test]
fn a_worker_that_announces_without_end_is_not_believed() {
    let mut index = index(Source::Events, 10, DEFAULT_BYTE_CAP);
    let tokens: Vec<u32> = (0..70_000).collect();
    let hashes: Vec<u64> = (0..70_000).collect();
    let event = Stored {
        parent: None,
        root: root(),
        hashes: &hashes,
        tokens: &tokens,
        block_tokens: 1,
        medium: Medium::Resident,
    };
    assert!(matches!(
        index.stored(W, event, AT(0)),
        Err(RoutingError::TooManyBlocks { .. })
    ));
    assert_eq!(index.stats().blocks, 0);
}

#[test]
fn a_missed_event_is_counted_and_said() {
    let mut index = index(Source::Events, 1_000, DEFAULT_BYTE_CAP);
    assert_eq!(
        store(&mut index, &[1, 2], 1, AT(3)),
        Err(RoutingError::Orphan)
    );
    index.removed(W, &[99], Medium::Resident, AT(4));
    let knowledge = index.knowledge(W).unwrap();
    assert_eq!((knowledge.orphans, knowledge.unknown_removals), (1, 1));
    assert_eq!(knowledge.last_event, Some(AT(4)));
}

fn announced(parent: Option<u64>, hashes: &[u64], tokens: &[u32], medium: Medium) -> PrefixIndex {
    let mut index = index(Source::Events, 100, usize::MAX);
    let event = Stored {
        parent,
        root: root(),
        hashes,
        tokens,
        block_tokens: 1,
        medium,
    };
    index.stored(W, event, AT(0)).unwrap();
    index
}

/// As vLLM's offloading tells it: hashes and nothing else.
fn by_name(hashes: &[u64], medium: Medium) -> Stored<'_> {
    Stored {
        parent: None,
        root: root(),
        hashes,
        tokens: &[],
        block_tokens: 0,
        medium,
    }
}

#[test]
fn a_loadable_block_is_worth_less_than_one_that_is_there_and_more_than_none() {
    let mut index = announced(None, &[1, 2, 3, 4], &[1, 2, 3, 4], Medium::Resident);
    let prompt = keys(&[1, 2, 3, 4, 5]);
    let all_there = index.matches(&prompt, AT(1)).worth(W);
    assert_eq!(all_there, 4000);
    index
        .stored(W, by_name(&[2, 3], Medium::Host), AT(1))
        .unwrap();
    assert_eq!(index.matches(&prompt, AT(1)).worth(W), all_there);
    index.removed(W, &[2, 3, 4], Medium::Resident, AT(2));
    let matches = index.matches(&prompt, AT(2));
    assert_eq!((matches.blocks(W), matches.loadable(W)), (1, 2));
    assert_eq!(matches.worth(W), 1000 + 2 * 900);
    index.removed(W, &[3], Medium::Host, AT(3));
    assert_eq!(index.matches(&prompt, AT(3)).loadable(W), 1);
    index.cleared(W, AT(4));
    assert_eq!(index.matches(&prompt, AT(4)).worth(W), 0);
}

#[test]
fn a_removal_from_host_memory_leaves_what_is_there_alone() {
    let mut index = announced(None, &[1, 2], &[1, 2], Medium::Resident);
    index.stored(W, by_name(&[1], Medium::Host), AT(1)).unwrap();
    index.removed(W, &[1], Medium::Host, AT(2));
    assert_eq!(index.matches(&keys(&[1, 2]), AT(2)).blocks(W), 2);
}

#[test]
fn the_word_of_a_tier_may_come_after_the_block_itself_went() {
    let mut index = announced(None, &[1, 2], &[1, 2], Medium::Resident);
    index.removed(W, &[2, 1], Medium::Resident, AT(1));
    index
        .stored(W, by_name(&[1, 2], Medium::Storage), AT(2))
        .unwrap();
    let matches = index.matches(&keys(&[1, 2]), AT(2));
    assert_eq!((matches.blocks(W), matches.loadable(W)), (0, 2));
    let known = index.knowledge(W).unwrap();
    assert_eq!((known.announced_blocks, known.loadable_blocks), (2, 2));
}

#[test]
fn what_is_shared_is_credited_to_all_who_share() {
    let mut index = announced(None, &[1, 2], &[1, 2], Medium::Shared);
    let other = WorkerId(1);
    let prompt = keys(&[1, 2]);
    assert_eq!(index.matches(&prompt, AT(1)).loadable(other), 0);
    let own = Stored {
        tokens: &[9],
        block_tokens: 1,
        ..by_name(&[3], Medium::Shared)
    };
    index.stored(other, own, AT(1)).unwrap();
    assert_eq!(index.matches(&prompt, AT(1)).loadable(other), 2);
    assert_eq!(index.matches(&prompt, AT(1)).loadable(W), 2);
    index.removed(W, &[2], Medium::Shared, AT(2));
    assert_eq!(index.matches(&prompt, AT(2)).loadable(other), 1);
    index.remove_worker(W);
    assert_eq!(index.matches(&prompt, AT(3)).loadable(other), 0);
    index.remove_worker(other);
    assert!(index.shared.is_empty());
}

#[test]
fn a_block_never_seen_before_is_placed_by_its_tokens_or_counted() {
    let mut index = announced(None, &[1, 2], &[1, 2], Medium::Shared);
    assert_eq!(index.matches(&keys(&[1, 2, 3]), AT(1)).loadable(W), 2);
    let unknown = index.stored(W, by_name(&[77], Medium::Host), AT(1));
    assert_eq!(unknown, Err(RoutingError::Orphan));
    assert_eq!(index.knowledge(W).unwrap().orphans, 1);
}

proptest! {
    #[test]
    fn names_and_tiers_never_lose_count(
        steps in prop::collection::vec((0..12u64, 0..4u8, any::<bool>()), 1..200),
    ) {
        let mut index = index(Source::Events, 4, usize::MAX);
        let path: Vec<u32> = (0..12).collect();
        let media = [Medium::Resident, Medium::Host, Medium::Storage, Medium::Shared];
        let mut naive: BTreeSet<(u64, u8)> = BTreeSet::new();
        for (hash, at, comes) in steps {
            let medium = media[usize::from(at)];
            let upto = hash as usize + 1;
            // Resident blocks come with all before them, as a prompt is computed.
            let hashes: Vec<u64> = if at == 0 { (0..=hash).collect() } else { vec![hash] };
            if comes {
                let event = Stored {
                    tokens: if at == 0 { &path[..upto] } else { &[] },
                    block_tokens: usize::from(at == 0),
                    ..by_name(&hashes, medium)
                };
                if index.stored(W, event, AT(0)).is_ok() {
                    naive.extend(hashes.iter().map(|hash| (*hash, at)));
                }
            } else {
                index.removed(W, &[hash], medium, AT(0));
                naive.remove(&(hash, at));
            }
            let known = index.knowledge(W).unwrap();
            let somewhere: BTreeSet<u64> = naive.iter().map(|(hash, _)| *hash).collect();
            let loadable: BTreeSet<u64> =
                naive.iter().filter(|(_, at)| *at > 0).map(|(hash, _)| *hash).collect();
            prop_assert_eq!(known.announced_blocks, somewhere.len() as u64);
            prop_assert_eq!(known.loadable_blocks, loadable.len() as u64);
            let matches = index.matches(&keys(&path), AT(0));
            let held = u64::from(matches.blocks(W));
            let run = (held..).take_while(|hash| loadable.contains(hash)).count();
            prop_assert_eq!(matches.loadable(W) as usize, run);
        }
    }
}

/// Tells a rank of a worker with four of them.
fn store_in_rank(index: &mut PrefixIndex, rank: u16, path: &[u32]) {
    let hashes: Vec<_> = (1..=path.len())
        .map(|end| engine_hash(&path[..end]))
        .collect();
    let event = Stored {
        parent: None,
        root: root(),
        hashes: &hashes,
        tokens: path,
        block_tokens: 1,
        medium: Medium::Resident,
    };
    index
        .stored(CacheId { worker: W, rank }, event, AT(0))
        .unwrap();
}

#[test]
fn a_hit_on_one_rank_is_no_hit_for_a_request_that_lands_on_another() {
    let mut index = index(Source::Events, 1_000, DEFAULT_BYTE_CAP);
    index.set_ranks(W, 4, Source::Events, Some(1_000));
    let path: Vec<u32> = (0..12).collect();
    store_in_rank(&mut index, 1, &path[..8]);
    store_in_rank(&mut index, 2, &path);
    check(&index);
    let mut matches = index.matches(&keys(&path), AT(1));
    assert_eq!(matches.blocks(W), (8 + 12) / 4, "what is found on average");
    assert_eq!(matches.best_rank(W), Some(2));
    matches.count_on(W, 1);
    assert_eq!(matches.blocks(W), 8);
    matches.count_on(W, 3);
    assert_eq!(matches.blocks(W), 0);
    assert_eq!(matches.best_rank(WorkerId(1)), None);
    assert_eq!(index.knowledge(W).unwrap().announced_blocks, 20);
}

#[test]
fn ranks_of_one_worker_lose_their_blocks_apart() {
    let mut index = index(Source::Events, 1_000, DEFAULT_BYTE_CAP);
    index.set_ranks(W, 2, Source::Events, Some(1_000));
    let path = [1, 2, 3, 4];
    let zero = CacheId::from(W);
    let one = CacheId { worker: W, rank: 1 };
    let found = |index: &PrefixIndex, rank| {
        let mut matches = index.matches(&keys(&path), AT(1));
        matches.count_on(W, rank);
        matches.blocks(W)
    };
    store_in_rank(&mut index, 0, &path);
    store_in_rank(&mut index, 1, &path);
    index.removed(one, &[engine_hash(&path)], Medium::Resident, AT(1));
    assert_eq!((found(&index, 0), found(&index, 1)), (4, 3));
    index.cleared(zero, AT(1));
    assert_eq!((found(&index, 0), found(&index, 1)), (0, 3));
    check(&index);
    index.restarted(W, AT(1));
    assert_eq!(index.stats().blocks, 0);
    index.set_ranks(W, 1, Source::Events, Some(1_000));
    store_in_rank(&mut index, 0, &path);
    assert_eq!(index.matches(&keys(&path), AT(1)).blocks(W), 4);
    check(&index);
}
