//! Blocks in this process, the longest unused of which go first.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use engine::store::{BlockStore, StoreKey, Tier, Written};

/// What keeping a block costs besides its bytes: its name, three times, and the slack of two tables.
const BLOCK_COST: usize = 256;

/// Blocks in memory.
pub struct Memory {
    shelf: Mutex<Shelf>,
    limit: usize,
}

#[derive(Default)]
struct Shelf {
    blocks: HashMap<StoreKey, (Bytes, u64)>,
    /// By last use.
    by_age: BTreeMap<u64, StoreKey>,
    bytes: usize,
    clock: u64,
}

impl Memory {
    /// At most `limit` bytes, with what keeping them costs.
    pub fn new(limit: usize) -> Self {
        Self {
            shelf: Mutex::default(),
            limit,
        }
    }

    /// Bytes that it takes now.
    pub fn bytes(&self) -> usize {
        self.shelf().bytes
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    /// Notes a use. Of a run the head is used last: it must not go before its tail.
    fn touch(&mut self, key: &StoreKey) {
        self.clock += 1;
        if let Some((_, age)) = self.blocks.get_mut(key) {
            self.by_age.remove(age);
            *age = self.clock;
            self.by_age.insert(self.clock, *key);
        }
    }

    fn take(&mut self, key: &StoreKey) -> Option<Bytes> {
        let (sealed, age) = self.blocks.remove(key)?;
        self.by_age.remove(&age);
        self.bytes -= sealed.len() + BLOCK_COST;
        Some(sealed)
    }
}

impl BlockStore for Memory {
    fn tier(&self) -> Tier {
        Tier::Memory
    }

    fn leading(&self, keys: &[StoreKey], _deadline: Instant) -> usize {
        let shelf = self.shelf();
        let there = |key: &&StoreKey| shelf.blocks.contains_key(*key);
        keys.iter().take_while(there).count()
    }

    fn read(&self, keys: &[StoreKey], _deadline: Instant) -> Vec<Bytes> {
        let mut shelf = self.shelf();
        let found: Vec<Bytes> = keys
            .iter()
            .map_while(|key| shelf.blocks.get(key).map(|(sealed, _)| sealed.clone()))
            .collect();
        for key in keys[..found.len()].iter().rev() {
            shelf.touch(key);
        }
        found
    }

    fn write(&self, blocks: Vec<(StoreKey, Bytes)>) -> Written {
        let mut written = Written::default();
        let mut shelf = self.shelf();
        for (key, sealed) in blocks {
            let cost = sealed.len() + BLOCK_COST;
            if cost > self.limit {
                written.failed += 1;
                continue;
            }
            if shelf.blocks.contains_key(&key) {
                shelf.touch(&key);
                continue;
            }
            while shelf.bytes + cost > self.limit {
                let Some((_, oldest)) = shelf.by_age.first_key_value() else {
                    break;
                };
                let oldest = *oldest;
                let fallen = shelf.take(&oldest);
                written.dropped.push((oldest, fallen));
            }
            shelf.bytes += cost;
            shelf.blocks.insert(key, (sealed, 0));
            shelf.touch(&key);
            written.kept.push(key);
        }
        written
    }

    fn discard(&self, key: &StoreKey) {
        self.shelf().take(key);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn key(n: u8) -> StoreKey {
        StoreKey::from_bytes([n; StoreKey::BYTES])
    }

    fn block(n: u8, bytes: usize) -> (StoreKey, Bytes) {
        (key(n), vec![n; bytes].into())
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(9)
    }

    proptest! {
        #[test]
        fn it_never_grows_beyond_its_bound_and_gives_only_what_it_got(
            steps in prop::collection::vec((0..20u8, 0..600usize, 0..3u8), 1..100),
        ) {
            let memory = Memory::new(2_000);
            for (n, bytes, what) in steps {
                match what {
                    0 => {
                        let before = memory.leading(&[key(n)], soon());
                        let written = memory.write(vec![block(n, bytes)]);
                        prop_assert_eq!(written.kept.len() + written.failed, 1 - before);
                        prop_assert!(written.dropped.iter().all(|(_, sealed)| sealed.is_some()));
                    }
                    1 => memory.discard(&key(n)),
                    _ => {
                        for sealed in memory.read(&[key(n), key(n ^ 1)], soon()) {
                            prop_assert!(sealed.iter().all(|byte| byte | 1 == n | 1));
                        }
                    }
                }
                prop_assert!(memory.bytes() <= 2_000);
            }
        }
    }

    #[test]
    fn the_longest_unused_goes_first_and_of_a_run_its_tail() {
        let memory = Memory::new(3 * (10 + BLOCK_COST));
        memory.write(vec![block(1, 10), block(2, 10), block(3, 10)]);
        assert_eq!(memory.read(&[key(1), key(2)], soon()).len(), 2);
        let dropped = |n| {
            let written = memory.write(vec![block(n, 10)]);
            written
                .dropped
                .into_iter()
                .map(|(key, _)| key)
                .collect::<Vec<_>>()
        };
        assert_eq!(dropped(4), [key(3)]);
        assert_eq!(dropped(5), [key(2)]);
        assert_eq!(dropped(6), [key(1)]);
    }
}
