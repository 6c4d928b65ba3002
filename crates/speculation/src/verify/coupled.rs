//! Choosing a token with given randomness, so that drafter and target choose alike.

use super::distribution::Distribution;
use crate::random::{Lane, PositionKey};

/// The token that wins the race: token `x` arrives after `-ln(u_x) / p(x)`, the first one is chosen.
///
/// Arrival times are exponential with rate `p(x)`, so `x` is first with probability `p(x)`. The `u_x` come
/// from the key and the token alone: two models that race with the same key have the same luck for each
/// token, and choose differently only where their probabilities differ (with probability at most
/// `2d / (1 + d)`, `d` their total variation distance). `None` when nothing can be chosen.
///
/// ```
/// use forespeak_speculation::verify::{Distribution, race};
/// use forespeak_speculation::PositionKey;
///
/// let target = Distribution::from_weights(&[0.2, 0.5, 0.3]);
/// let drafter = Distribution::from_weights(&[0.25, 0.5, 0.25]);
/// let same = (0..10_000)
///     .filter(|&key| race(&target, PositionKey(key)) == race(&drafter, PositionKey(key)))
///     .count();
/// assert!(same > 9_050); // (1 - 0.05) / (1 + 0.05) = 0.905
/// ```
pub fn race(distribution: &Distribution, key: PositionKey) -> Option<u32> {
    race_among(distribution.entries().iter().map(|e| (e.id, e.weight)), key)
}

/// [`race`] over one weight for each token of the vocabulary, without building a [`Distribution`].
/// Chooses the same token.
pub fn race_weights(weights: &[f32], key: PositionKey) -> Option<u32> {
    race_among(
        (0..)
            .zip(weights.iter().copied())
            .filter(|(_, w)| *w > 0.0 && w.is_finite()),
        key,
    )
}

/// [`race`] over tokens and their weights, which must be positive numbers.
pub fn race_among(tokens: impl Iterator<Item = (u32, f32)>, key: PositionKey) -> Option<u32> {
    let mut winner = None;
    let mut arrival = f64::INFINITY;
    for (id, weight) in tokens {
        let weight = f64::from(weight);
        let u = key.of_token(id);
        // -ln(u) >= 1 - u: most tokens are seen to be late without a logarithm.
        if 1.0 - u >= arrival * weight {
            continue;
        }
        let at = -u.ln() / weight;
        if at < arrival {
            arrival = at;
            winner = Some(id);
        }
    }
    winner
}

/// The token in whose share of `[0, 1)` the key's number falls, shares laid out in the order of the ids.
///
/// Cheaper than [`race`] (one number for a position), but a drafter that is wrong about one token shifts
/// the shares of all tokens behind it. `None` when nothing can be chosen.
pub fn invert(distribution: &Distribution, key: PositionKey) -> Option<u32> {
    at_share(distribution, key.uniform(Lane::Token))
}

/// The token at `share` of the mass.
pub(super) fn at_share(distribution: &Distribution, share: f64) -> Option<u32> {
    let mut left = share * distribution.total();
    for entry in distribution.entries() {
        left -= f64::from(entry.weight);
        if left < 0.0 {
            return Some(entry.id);
        }
    }
    // Rounding took the draw past the end.
    distribution.entries().last().map(|e| e.id)
}
