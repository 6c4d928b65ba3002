//! The index against a naive model, and its books against themselves.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

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
