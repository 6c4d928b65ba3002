//! Randomness without state.
//!
//! The draw for a position is a pure function of (seed, choice, position). Preemption, batching and
//! chunking can therefore not change a text: whoever computes position 17 again draws the same number.

/// A number in `[0, 1)` for one position of one choice.
pub(crate) fn uniform(seed: u64, choice: usize, position: usize) -> f64 {
    let mut input = [0; 24];
    input[..8].copy_from_slice(&seed.to_le_bytes());
    input[8..16].copy_from_slice(&(choice as u64).to_le_bytes());
    input[16..].copy_from_slice(&(position as u64).to_le_bytes());
    let hash = blake3::hash(&input);
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_bytes()[..8]);
    // The 53 bits that a double can hold.
    (u64::from_le_bytes(first) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::uniform;

    #[test]
    fn draws_are_reproducible_and_spread_evenly() {
        assert_eq!(uniform(1, 2, 3), uniform(1, 2, 3));
        assert_ne!(uniform(1, 2, 3), uniform(1, 3, 2));
        let mut buckets = [0usize; 10];
        for position in 0..10_000 {
            let u = uniform(42, 0, position);
            buckets[(u * 10.0) as usize] += 1;
        }
        assert!(
            buckets.iter().all(|&n| (850..1150).contains(&n)),
            "{buckets:?}"
        );
    }
}
