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
    let hash = blake3::hash(&input);
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_bytes()[..8]);
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
    }
}
