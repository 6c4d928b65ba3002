//! What will happen, in order of time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

/// A queue of future events. Events of the same time come out in the order in which they were put in, so that a
/// run depends on nothing but its seed.
pub(crate) struct Agenda<T> {
    heap: BinaryHeap<Entry<T>>,
    entered: u64,
}

struct Entry<T> {
    at: Duration,
    place: u64,
    what: T,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            entered: 0,
        }
    }
}

impl<T> Agenda<T> {
    pub(crate) fn push(&mut self, at: Duration, what: T) {
        self.entered += 1;
        self.heap.push(Entry {
            at,
            place: self.entered,
            what,
        });
    }

    pub(crate) fn pop(&mut self) -> Option<(Duration, T)> {
        self.heap.pop().map(|entry| (entry.at, entry.what))
    }
}

impl<T> Ord for Entry<T> {
    /// Reversed: the heap gives out its greatest, the agenda its earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.place).cmp(&(self.at, self.place))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_equals_keep_their_order() {
        let mut agenda = Agenda::default();
        for (second, name) in [(2, "c"), (1, "a"), (2, "d"), (1, "b")] {
            agenda.push(Duration::from_secs(second), name);
        }
        let order: String = std::iter::from_fn(|| agenda.pop())
            .map(|(_, name)| name)
            .collect();
        assert_eq!(order, "abcd");
    }
}
