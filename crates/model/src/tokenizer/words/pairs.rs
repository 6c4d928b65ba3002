//! What pairs of tokens become. A table of our own, because a merge is little more than its look-ups: all that is said of a pair
//! stands in one place, and few pairs are not in the first place that is looked at.

/// The rank of neighbours that nothing joins.
pub(super) const NEVER: u32 = u32::MAX;

/// How two tokens are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Merge {
    /// The lower, the sooner.
    pub(super) rank: u32,
    /// What they become.
    pub(super) token: u32,
}

impl Merge {
    /// Of tokens that nothing joins.
    pub(super) const NEVER: Self = Self {
        rank: NEVER,
        token: 0,
    };
}

/// A pair and its merge; an empty place has the merge of those that nothing joins.
#[derive(Debug, Clone, Copy)]
struct Place {
    pair: (u32, u32),
    merge: Merge,
}

/// Merges by pair. A third of the places or more are empty; their number is a power of two.
#[derive(Debug)]
pub(super) struct Pairs {
    places: Box<[Place]>,
}

impl Pairs {
    /// An empty table for so many pairs.
    pub(super) fn with_room_for(pairs: usize) -> Self {
        let empty = Place {
            pair: (0, 0),
            merge: Merge::NEVER,
        };
        Self {
            places: vec![empty; (pairs + pairs / 2).next_power_of_two().max(2)].into(),
        }
    }

    /// How two tokens are joined.
    pub(super) fn get(&self, left: u32, right: u32) -> Merge {
        self.places[self.find(left, right)].merge
    }

    /// Says how two tokens are joined; what was said before is forgotten.
    pub(super) fn insert(&mut self, left: u32, right: u32, merge: Merge) {
        let at = self.find(left, right);
        self.places[at] = Place {
            pair: (left, right),
            merge,
        };
    }

    /// The place of a pair, or the empty one where it would be.
    fn find(&self, left: u32, right: u32) -> usize {
        let last = self.places.len() - 1;
        let mut at = hash(left, right) as usize & last;
        loop {
            let place = &self.places[at];
            if place.pair == (left, right) || place.merge.rank == NEVER {
                return at;
            }
            at = (at + 1) & last;
        }
    }
}

fn hash(left: u32, right: u32) -> u64 {
    let pair = u64::from(left) << 32 | u64::from(right);
    let product = u128::from(pair ^ 0x9e37_79b9_7f4a_7c15) * 0xbf58_476d_1ce4_e5b9;
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn a_pair_has_the_merge_that_was_last_said(
            said in proptest::collection::vec((0..20_u32, 0..20_u32), 0..200),
        ) {
            let mut pairs = Pairs::with_room_for(said.len());
            let mut expected = HashMap::new();
            for ((left, right), rank) in said.into_iter().zip(0..) {
                let merge = Merge { rank, token: 7 * rank };
                pairs.insert(left, right, merge);
                expected.insert((left, right), merge);
            }
            for left in 0..20 {
                for right in 0..20 {
                    let merge = expected.get(&(left, right)).copied();
                    prop_assert_eq!(pairs.get(left, right), merge.unwrap_or(Merge::NEVER));
                }
            }
        }
    }
}
