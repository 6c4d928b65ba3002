//! The index over one text.

use foldhash::HashMap;

use super::{Found, MAX_MATCH, Match};
use crate::random::mix;

/// Stands between texts in one index; no vocabulary has it.
const BREAK: u32 = u32::MAX;

/// No place. Places are counted from 1, so that tables can start as zeros.
const NOWHERE: u32 = 0;

/// Places of a chain that are looked at. Enough to get past common pairs, few enough to cost nothing.
const MAX_PLACES: usize = 24;

/// Fewest tokens that agree at a place of a chain.
const PAIR: usize = 2;

/// Smallest table of heads.
const MIN_HEADS: usize = 256;

/// Tokens, and where each pair of them stood.
#[derive(Debug, Clone, Default)]
pub struct SuffixIndex {
    tokens: Vec<u32>,
    /// By hash of a pair: the latest place right behind it.
    heads: Vec<u32>,
    /// By place: the one before it whose pair has the same hash.
    earlier: Vec<u32>,
    /// By token: the latest place right behind it, among the first so many. Only who looks up in its own text needs it, and fills it.
    singles: HashMap<u32, u32>,
    in_singles: usize,
    /// The place that the last lookup pointed at, kept in step with the text while they agree.
    following: u32,
}

impl SuffixIndex {
    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Adds tokens at the end: the prompt, then whatever was emitted.
    pub fn extend(&mut self, tokens: &[u32]) {
        self.tokens.reserve(tokens.len());
        for &token in tokens {
            self.push(token);
        }
    }

    /// Ends a text: no match reaches across.
    pub(super) fn end_text(&mut self) {
        self.push(BREAK);
    }

    /// What followed the last time, at most `most` tokens.
    pub fn propose(&mut self, most: usize) -> Option<Found> {
        let single = self.single();
        let end = self.tokens.len();
        let (place, matched) = self.best(&self.tokens, Some(end), single)?;
        self.following = place;
        Found::new(self.going_on(place, most), matched)
    }

    /// Where the last token stood before.
    fn single(&mut self) -> Option<(u32, Match)> {
        let (last, before) = self.tokens.split_last()?;
        let new = before.iter().enumerate().skip(self.in_singles);
        for (index, &token) in new {
            let place = u32::try_from(index + 1).unwrap_or(NOWHERE);
            self.singles.insert(token, place);
        }
        self.in_singles = before.len();
        let &place = self.singles.get(last)?;
        let matched = Match {
            length: 1,
            distance: self.tokens.len() - place as usize,
        };
        Some((place, matched))
    }

    /// The same for another text that ends with `context`.
    pub(super) fn propose_for(&self, context: &[u32], most: usize) -> Option<Found> {
        let (place, matched) = self.best(context, None, None)?;
        Found::new(self.after(place, most), matched)
    }

    fn push(&mut self, token: u32) {
        if self.following != NOWHERE {
            let agrees = self.tokens.get(self.following as usize) == Some(&token);
            self.following = if agrees { self.following + 1 } else { NOWHERE };
        }
        self.tokens.push(token);
        if self.tokens.len() > self.heads.len() {
            self.grow();
        } else {
            self.enter(self.tokens.len());
        }
    }

    /// Enters the place behind the first `place` tokens.
    fn enter(&mut self, place: usize) {
        let slot = pair_before(&self.tokens, place).and_then(|pair| self.slot(pair));
        let before = match slot.and_then(|slot| self.heads.get_mut(slot)) {
            Some(head) => std::mem::replace(head, u32::try_from(place).unwrap_or(NOWHERE)),
            None => NOWHERE,
        };
        self.earlier.push(before);
    }

    /// Doubles the table of heads and enters everything anew: O(1) a token over time.
    fn grow(&mut self) {
        let heads = (2 * self.heads.len()).max(MIN_HEADS);
        self.heads = vec![NOWHERE; heads];
        self.earlier.clear();
        self.earlier.push(NOWHERE);
        for place in 1..=self.tokens.len() {
            self.enter(place);
        }
    }

    fn slot(&self, (a, b): (u32, u32)) -> Option<usize> {
        let hash = mix((u64::from(a) << 32 | u64::from(b)).wrapping_add(0x9e37_79b9_7f4a_7c15));
        (!self.heads.is_empty()).then(|| (hash as usize) & (self.heads.len() - 1))
    }

    /// The place to follow where `context` ends, which is this very text if that has an `end`. What is known already is left
    /// only for a better match.
    fn best(
        &self,
        context: &[u32],
        end: Option<usize>,
        known: Option<(u32, Match)>,
    ) -> Option<(u32, Match)> {
        let mut best = known;
        let mut consider = |place: u32| {
            // Its own end agrees with itself, and proposes nothing.
            if place == NOWHERE || end.is_some_and(|end| place as usize >= end) {
                return;
            }
            let matched = Match {
                length: self.agreement(context, place as usize),
                distance: end.map_or(usize::MAX, |end| end - place as usize),
            };
            let ranks_higher = best.is_none_or(|(_, best)| matched.rank() > best.rank());
            if matched.length >= PAIR && ranks_higher {
                best = Some((place, matched));
            }
        };
        if end.is_some() {
            consider(self.following);
        }
        let pair = pair_before(context, context.len());
        let mut place = pair
            .and_then(|pair| self.slot(pair))
            .and_then(|slot| self.heads.get(slot))
            .copied()
            .unwrap_or(NOWHERE);
        for _ in 0..MAX_PLACES {
            if place == NOWHERE {
                break;
            }
            consider(place);
            place = self.earlier.get(place as usize).copied().unwrap_or(NOWHERE);
        }
        best
    }

    fn agreement(&self, context: &[u32], place: usize) -> usize {
        let here = self.tokens.get(..place).unwrap_or_default();
        here.iter()
            .rev()
            .zip(context.iter().rev())
            .take(MAX_MATCH)
            .take_while(|(a, b)| a == b && **a != BREAK)
            .count()
    }

    /// What followed `place`, and from the end of the text on that again: a text that has begun to repeat itself
    /// most likely goes on repeating, however short what it repeats.
    fn going_on(&self, place: u32, most: usize) -> Vec<u32> {
        let again = self.tokens.get(place as usize..).unwrap_or_default();
        again.iter().copied().cycle().take(most).collect()
    }

    fn after(&self, place: u32, most: usize) -> Vec<u32> {
        let tokens = self.tokens.get(place as usize..).unwrap_or_default();
        tokens
            .iter()
            .copied()
            .take(most)
            .take_while(|&token| token != BREAK)
            .collect()
    }
}

fn pair_before(tokens: &[u32], place: usize) -> Option<(u32, u32)> {
    let a = *tokens.get(place.checked_sub(2)?)?;
    let b = *tokens.get(place - 1)?;
    (a != BREAK && b != BREAK).then_some((a, b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_copy_is_followed_through_pairs_that_are_everywhere() {
        // One pair fills the text; only the place that was followed knows where the copy stands.
        let mut document: Vec<u32> = Vec::new();
        for i in 0..200u32 {
            document.extend([1, 2, 1_000 + i, 1, 2, 1, 2]);
        }
        let mut index = SuffixIndex::default();
        index.extend(&document);
        index.extend(&[9, 9]);
        index.extend(&document[..8]);
        let mut right = 0;
        for &token in &document[8..200] {
            let found = index.propose(4).unwrap();
            right += usize::from(found.tokens[0] == token);
            index.extend(&[token]);
        }
        assert!(right >= 188, "{right} of 192");
    }

    #[test]
    fn a_text_that_goes_in_circles_is_followed_round_and_round() {
        let mut index = SuffixIndex::default();
        index.extend(&[9, 5, 6, 7, 5, 6, 7, 5, 6]);
        let found = index.propose(8).unwrap();
        assert_eq!(found.tokens, [7, 5, 6, 7, 5, 6, 7, 5]);
    }

    #[test]
    fn a_circle_goes_before_matches_that_are_hardly_longer() {
        let mut index = SuffixIndex::default();
        index.extend(&[4, 5, 5, 7, 1, 4, 5, 5]);
        let found = index.propose(2).unwrap();
        assert_eq!(found.tokens, [7, 1], "three tokens against one said twice");
        let mut index = SuffixIndex::default();
        index.extend(&[3, 5, 5, 7, 1, 4, 5, 5]);
        let found = index.propose(2).unwrap();
        assert_eq!(found.tokens, [5, 5], "two against one");
        assert!(found.matched.is_circle());
    }

    #[test]
    fn a_single_token_is_followed_only_where_no_pair_is_known() {
        let mut index = SuffixIndex::default();
        index.extend(&[1, 2, 3, 9, 2, 4, 8, 2]);
        let found = index.propose(2).unwrap();
        assert_eq!(
            (found.tokens.as_slice(), found.matched.length),
            (&[4, 8][..], 1)
        );
        index.extend(&[5, 1, 2]);
        let found = index.propose(2).unwrap();
        assert_eq!(
            (found.tokens.as_slice(), found.matched.length),
            (&[3, 9][..], 2)
        );
    }

    #[test]
    fn nothing_is_found_in_texts_without_repetition() {
        let mut index = SuffixIndex::default();
        assert!(index.propose(4).is_none());
        index.extend(&(0..5_000).collect::<Vec<_>>());
        assert!(index.propose(4).is_none());
        assert_eq!(index.len(), 5_000);
    }

    proptest! {
        #[test]
        fn what_is_found_did_follow_an_equal_end(
            text in prop::collection::vec(0u32..4, 0..600),
            most in 1usize..9,
        ) {
            let mut index = SuffixIndex::default();
            for (at, &token) in text.iter().enumerate() {
                index.extend(&[token]);
                let text = &text[..=at];
                let Some(found) = index.propose(most) else {
                    prop_assert!(!text[..at].contains(&token));
                    continue;
                };
                prop_assert_eq!(found.tokens.len(), most);
                let tail = &text[text.len() - found.matched.length..];
                // Copied token by token, the text's own continuation included.
                let follows = (found.matched.length..text.len()).any(|place| {
                    let mut copy = text.to_vec();
                    for at in place..place + most {
                        copy.push(copy[at]);
                    }
                    text[..place].ends_with(tail) && copy[text.len()..] == found.tokens
                });
                prop_assert!(follows);
            }
        }
    }
}
