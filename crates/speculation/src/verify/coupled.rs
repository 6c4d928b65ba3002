//! Choosing a token with given randomness, so that drafter and target choose alike.

use super::distribution::Distribution;
use crate::random::{COARSE, Lane, PositionKey};

/// The token that wins the race: token `x` arrives after `-ln(1 - u_x) / p(x)`, the first one is chosen.
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
/// Chooses the same token, sooner if `favourite` is likely.
#[inline(always)]
pub fn race_weights(weights: &[f32], favourite: u32, key: PositionKey) -> Option<u32> {
    let mut race = Race::new(key);
    if let Some(&weight) = weights.get(favourite as usize) {
        race.enter(favourite, weight);
    }
    let (groups, rest) = weights.as_chunks::<GROUP>();
    let mut first = 0;
    for group in groups {
        if race.is_open_to(first, group) {
            for (id, &weight) in (first..).zip(group) {
                race.enter(id, weight);
            }
        }
        first += GROUP as u32;
    }
    for (id, &weight) in (first..).zip(rest) {
        race.enter(id, weight);
    }
    race.winner
}

/// [`race`] over tokens and their weights.
pub fn race_among(tokens: impl Iterator<Item = (u32, f32)>, key: PositionKey) -> Option<u32> {
    let mut race = Race::new(key);
    for (id, weight) in tokens {
        race.enter(id, weight);
    }
    race.winner
}

/// Tokens that are looked at together: as many as the widest vector holds.
const GROUP: usize = 16;

/// A race under way.
struct Race {
    key: PositionKey,
    winner: Option<u32>,
    /// When the winner arrived.
    arrival: f64,
}

impl Race {
    #[inline(always)]
    fn new(key: PositionKey) -> Self {
        Self {
            key,
            winner: None,
            arrival: f64::INFINITY,
        }
    }

    /// Whether any token of a group, whose ids begin with `first`, might arrive before the winner: whether what is known
    /// of its luck by 24 bits is less than its weight needs. Rounding errs on the side of yes.
    #[inline(always)]
    fn is_open_to(&self, first: u32, group: &[f32; GROUP]) -> bool {
        const BITS: u32 = 24;
        const ROUNDING: f64 = 1.0 + 1e-6;
        let bound = (self.arrival * ROUNDING * f64::from(1 << BITS)) as f32;
        let mut open = false;
        for (id, weight) in (first..).zip(group) {
            let luck = (self.key.coarse(id) >> (32 - BITS)) as f32;
            open |= luck <= bound * weight;
        }
        open
    }

    #[inline(always)]
    fn enter(&mut self, id: u32, weight: f32) {
        let needed = self.arrival * f64::from(weight);
        // -ln(1 - u) >= u: most tokens are seen to be late without a logarithm, and without the last bits of their luck.
        let possible = weight > 0.0 && weight.is_finite();
        if !possible || f64::from(self.key.coarse(id)) >= needed * COARSE {
            return;
        }
        self.finish(id, weight);
    }

    /// Kept out of the loops around it: few tokens come so far.
    #[inline(never)]
    fn finish(&mut self, id: u32, weight: f32) {
        let at = -(-self.key.of_token(id)).ln_1p() / f64::from(weight);
        if at < self.arrival || (at == self.arrival && self.winner > Some(id)) {
            self.arrival = at;
            self.winner = Some(id);
        }
    }
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
