//! Drafts without a model: what followed the last time the text read like this.
//!
//! Summaries, edits, code and answers about a given text repeat long stretches of it. A [`SuffixIndex`] over
//! one sequence finds where its latest tokens stood before and proposes what followed; a [`TenantPool`] does
//! the same over what other sequences of the same tenant said.
//!
//! The index is the match finder of LZ77: for every pair of tokens the latest place where it ended, and for
//! every place the one before it with the same pair. A lookup walks a bounded part of that chain, measures
//! how far back each place agrees with the present end, and takes the longest agreement, the latest of
//! equals; but a text that goes in circles is followed round before a match that is not more than twice as long ([`Match`]).
//! While a copy goes on, the place where the last lookup was found is tried first: it is the right one even if its pairs are
//! too common to be found again. Where no pair has been before, what followed the last token the
//! last time is a guess too: seldom right, and free on a machine that waits for memory. Adding a token is O(1), 12 bytes a
//! token, and as much again for each different one.
//!
//! # Example
//! ```
//! use forespeak_speculation::ngram::SuffixIndex;
//!
//! let mut index = SuffixIndex::default();
//! index.extend(&[10, 11, 12, 13, 14, 50, 10, 11, 12]);
//! let found = index.propose(3).unwrap();
//! assert_eq!(found.tokens, [13, 14, 50]);
//! assert_eq!(found.matched.length, 3);
//! ```

mod index;
mod matching;
mod pool;

pub use index::SuffixIndex;
pub use matching::Match;
pub use pool::TenantPool;

use crate::step::Lookup;

/// Fewest agreeing tokens of a lookup.
pub const MIN_MATCH: usize = 1;

/// Agreement is measured up to here; more says nothing more.
pub const MAX_MATCH: usize = 32;

/// A draft that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What followed then.
    pub tokens: Vec<u32>,
    /// How well the place agrees.
    pub matched: Match,
}

impl Found {
    fn new(tokens: Vec<u32>, matched: Match) -> Option<Self> {
        (!tokens.is_empty()).then_some(Self { tokens, matched })
    }

    /// The one to follow: the first unless the second ranks higher.
    pub fn better(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        match (first, second) {
            (Some(first), Some(second)) if second.matched.rank() > first.matched.rank() => {
                Some(second)
            }
            (first, second) => first.or(second),
        }
    }

    /// What planning needs to know of it.
    pub fn lookup(&self) -> Lookup {
        Lookup {
            length: self.tokens.len(),
            strength: self.matched.strength(),
        }
    }
}
