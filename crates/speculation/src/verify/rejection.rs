//! Speculative sampling with acceptance `min(1, p/q)` (Leviathan et al. 2023, Chen et al. 2023).

use super::coupled::at_share;
use super::distribution::{Distribution, Weighted};
use crate::random::{Lane, PositionKey};

/// A draft for [`speculative_choice`]: a token of `drafter`, drawn with [`Lane::Draft`]. A position that is drafted
/// again needs another key, and whether the draft is put to the target must not depend on the token: one that is
/// withdrawn for being unlikely leaves the others more often than `drafter` says.
pub fn speculative_draft(drafter: &Distribution, key: PositionKey) -> Option<u32> {
    at_share(drafter, key.uniform(Lane::Draft))
}

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
    if accepts_draft(target.probability(drafted), drafter, drafted, key) {
        return Some(drafted);
    }
    instead_of_draft(target, drafter, key)
}

/// The first half of [`speculative_choice`]: whether the draft is kept, which takes no more of the target than its
/// probability of the draft.
pub fn accepts_draft(
    probability: f64,
    drafter: &Distribution,
    drafted: u32,
    key: PositionKey,
) -> bool {
    accepts(probability, drafter, drafted, key.uniform(Lane::Accept))
}

/// The second half: what stands in for a draft that was not kept.
pub fn instead_of_draft(
    target: &Distribution,
    drafter: &Distribution,
    key: PositionKey,
) -> Option<u32> {
    instead(target, drafter, key.uniform(Lane::Resample))
}

pub(super) fn accepts(probability: f64, drafter: &Distribution, drafted: u32, draw: f64) -> bool {
    draw * drafter.probability(drafted) < probability
}

pub(super) fn instead(target: &Distribution, drafter: &Distribution, draw: f64) -> Option<u32> {
    // Both have their tokens in ascending order.
    let mut rest = drafter.entries().iter().peekable();
    let residual = Distribution::from_entries(target.entries().iter().map(|e| {
        while rest.next_if(|other| other.id < e.id).is_some() {}
        let same = rest.next_if(|other| other.id == e.id);
        let drafted = same.map_or(0.0, |other| f64::from(other.weight) / drafter.total());
        Weighted {
            id: e.id,
            weight: (f64::from(e.weight) / target.total() - drafted) as f32,
        }
    }));
    // Equal distributions reject only by rounding; nothing is left over then.
    if residual.total() > 0.0 {
        at_share(&residual, draw)
    } else {
        at_share(target, draw)
    }
}
