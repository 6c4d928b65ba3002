//! Speculative sampling with acceptance `min(1, p/q)` (Leviathan et al. 2023, Chen et al. 2023).

use super::coupled::at_share;
use super::distribution::{Distribution, Weighted};
use crate::random::{Lane, PositionKey};

/// The token for a row whose draft was drawn from `drafter`: the draft with probability
/// `min(1, p(x)/q(x))`, else one drawn from what the target has above the drafter, `max(0, p - q)`.
///
/// Its distribution is `target`'s: `q(x) min(1, p(x)/q(x)) + (1 - sum min(p, q)) (p(x) - q(x))+ / sum (p - q)+`
/// `= min(p, q) + (p - q)+ = p`. This needs a draft drawn from `drafter` independently of the lanes
/// [`Lane::Accept`] and [`Lane::Resample`] of `key`, so [`Lane::Draft`] is the drafter's. It never gives the
/// draft back after rejecting it, so [`super::Verification`] reads acceptance off by equality. `None` when
/// the target allows nothing.
///
/// ```
/// use forespeak_speculation::verify::{Distribution, speculative_choice};
/// use forespeak_speculation::PositionKey;
///
/// // p/q of token 0 is 0.25/0.5: it is kept every other time; token 1 then stands in for it.
/// let target = Distribution::from_weights(&[0.25, 0.75]);
/// let drafter = Distribution::from_weights(&[0.5, 0.5]);
/// let kept = (0..10_000)
///     .filter(|&key| speculative_choice(&target, &drafter, 0, PositionKey(key)) == Some(0))
///     .count();
/// assert!((4_850..5_150).contains(&kept));
/// ```
pub fn speculative_choice(
    target: &Distribution,
    drafter: &Distribution,
    drafted: u32,
    key: PositionKey,
) -> Option<u32> {
    if accepts(target, drafter, drafted, key.uniform(Lane::Accept)) {
        return Some(drafted);
    }
    instead(target, drafter, key.uniform(Lane::Resample))
}

pub(super) fn accepts(
    target: &Distribution,
    drafter: &Distribution,
    drafted: u32,
    draw: f64,
) -> bool {
    draw * drafter.probability(drafted) < target.probability(drafted)
}

pub(super) fn instead(target: &Distribution, drafter: &Distribution, draw: f64) -> Option<u32> {
    let residual = Distribution::from_entries(target.entries().iter().map(|e| Weighted {
        id: e.id,
        weight: (f64::from(e.weight) / target.total() - drafter.probability(e.id)) as f32,
    }));
    // Equal distributions reject only by rounding; nothing is left over then.
    if residual.total() > 0.0 {
        at_share(&residual, draw)
    } else {
        at_share(target, draw)
    }
}
