//! Collections that grow a little at a time.
//!
//! A table that is full is copied into one twice as large, all at once: milliseconds for a hundred thousand entries, during which
//! everybody waits for the lock that it lies under. Split into parts, each is copied in its turn, and nobody notices.

use std::ops::{Index, IndexMut};

use crate::hash::HashedMap;

/// Parts of a map; each doubles on its own.
const PARTS: usize = 256;

/// Entries of a list that lie side by side.
const CHUNK: usize = 1024;

/// A map from hashes, whose first bits say in which part they are.
pub(crate) struct GradualMap<V> {
    parts: Box<[HashedMap<u64, V>]>,
    len: usize,
}

impl<V> Default for GradualMap<V> {
    fn default() -> Self {
        Self {
            parts: (0..PARTS).map(|_| HashedMap::default()).collect(),
            len: 0,
        }
    }
}

impl<V> GradualMap<V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, key: u64) -> Option<&V> {
        self.parts[part(key)].get(&key)
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        self.parts[part(key)].get_mut(&key)
    }

    pub(crate) fn contains(&self, key: u64) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn insert(&mut self, key: u64, value: V) -> Option<V> {
        let before = self.parts[part(key)].insert(key, value);
        self.len += usize::from(before.is_none());
        before
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<V> {
        let removed = self.parts[part(key)].remove(&key);
        self.len -= usize::from(removed.is_some());
        removed
    }
}

fn part(key: u64) -> usize {
    (key >> (u64::BITS - PARTS.trailing_zeros())) as usize
}

/// A list of which nothing moves once it is there.
pub(crate) struct GradualVec<T> {
    chunks: Vec<Vec<T>>,
}

impl<T> Default for GradualVec<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T> GradualVec<T> {
    pub(crate) fn len(&self) -> usize {
        let last = self.chunks.last().map_or(0, Vec::len);
        self.chunks.len().saturating_sub(1) * CHUNK + last
    }

    pub(crate) fn push(&mut self, item: T) {
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push(item),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(item);
                self.chunks.push(chunk);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }
}

impl<T> Index<usize> for GradualVec<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.chunks[at / CHUNK][at % CHUNK]
    }
}

impl<T> IndexMut<usize> for GradualVec<T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.chunks[at / CHUNK][at % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn a_map_is_a_map(steps in proptest::collection::vec((0..64_u64, any::<Option<u8>>()), 0..300)) {
            let (mut ours, mut theirs) = (GradualMap::default(), HashMap::new());
            for (key, value) in steps {
                let key = mix(key);
                match value {
                    Some(value) => assert_eq!(ours.insert(key, value), theirs.insert(key, value)),
                    None => assert_eq!(ours.remove(key), theirs.remove(&key)),
                }
                assert_eq!(ours.len(), theirs.len());
                assert_eq!(ours.get(key), theirs.get(&key));
                assert_eq!(ours.get_mut(key), theirs.get_mut(&key));
                assert_eq!(ours.contains(key), theirs.contains_key(&key));
            }
        }
    }

    #[test]
    fn a_list_is_a_list() {
        let mut list = GradualVec::default();
        for number in 0..3 * CHUNK + 1 {
            assert_eq!(list.len(), number);
            list.push(number);
        }
        list[CHUNK] = 7;
        let mut expected: Vec<usize> = (0..3 * CHUNK + 1).collect();
        expected[CHUNK] = 7;
        assert!(list.iter().eq(&expected));
        assert!((0..list.len()).all(|at| list[at] == expected[at]));
    }
}
