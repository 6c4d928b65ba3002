//! Randomness without state.
//!
//! The draw for a position is a pure function of (seed, choice, position). Preemption, batching and
//! chunking can therefore not change a text: whoever computes position 17 again draws the same number.

use speculation::PositionKey;

/// The luck of one position of one choice.
pub(crate) fn key(seed: u64, choice: usize, position: usize) -> PositionKey {
    let mut input = [0; 24];
    input[..8].copy_from_slice(&seed.to_le_bytes());
    input[8..16].copy_from_slice(&(choice as u64).to_le_bytes());
    input[16..].copy_from_slice(&(position as u64).to_le_bytes());
    first_bytes(&input)
}

/// The luck of a draft made `ahead` of `position`. No position is the first of two drafts, so no two draws share one,
/// and none has anything to do with the luck of a position itself.
pub(crate) fn draft_key(seed: u64, choice: usize, position: usize, ahead: usize) -> PositionKey {
    let PositionKey(here) = key(seed, choice, position);
    let mut input = [0; 16];
    input[..8].copy_from_slice(&here.to_le_bytes());
    input[8..].copy_from_slice(&(ahead as u64).to_le_bytes());
    first_bytes(&input)
}

/// A seed for the `request`-th request, which brings none.
pub(crate) fn drawn_seed(luck: u64, request: u64) -> u64 {
    let mut input = [0; 17];
    input[..8].copy_from_slice(&luck.to_le_bytes());
    input[8..16].copy_from_slice(&request.to_le_bytes());
    first_bytes(&input).0
}

fn first_bytes(input: &[u8]) -> PositionKey {
    let mut first = [0; 8];
    first.copy_from_slice(&blake3::hash(input).as_bytes()[..8]);
    PositionKey(u64::from_le_bytes(first))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_reproducible_and_no_two_positions_share_one() {
        assert_eq!(key(1, 2, 3), key(1, 2, 3));
        let all: HashSet<u64> = (0..10)
            .flat_map(|seed| (0..10).map(move |choice| (seed, choice)))
            .flat_map(|(seed, choice)| (0..100).map(move |at| key(seed, choice, at).0))
            .collect();
        assert_eq!(all.len(), 10_000);
        let drafts = (0..100).flat_map(|at| (0..8).map(move |ahead| draft_key(1, 2, at, ahead).0));
        let drafts: HashSet<u64> = drafts.collect();
        assert_eq!(drafts.len(), 800);
        assert!(drafts.is_disjoint(&all));
    }
}
