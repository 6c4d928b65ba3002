//! Which drafted tokens become text.
//!
//! The target model is run once over the last token and the draft `d_0 .. d_{k-1}`; its row `i` scores
//! what follows `d_0 .. d_{i-1}`. [`Verification`] walks the rows: at each one somebody *chooses* a
//! token for it; while the choice equals the draft the walk goes on, the first other choice ends it, and
//! when all drafts were chosen the row behind them gives a token more (the bonus). A walk therefore emits
//! `accepted + 1` tokens, each of them a token chosen from the target's row, and never a draft as such.
//!
//! How a row's token is chosen decides what is promised. All ways take *processed* distributions (after
//! temperature, penalties, masks, top-k and the like), so they hold for every sampling option:
//!
//! | way | the text for a seed | P(accept) |
//! |---|---|---|
//! | greedy: the best token | that of no speculation, byte by byte | 1 if the models agree |
//! | **own choice**, draft coupled by [`race`] | that of no speculation, byte by byte | at least `(1 - d) / (1 + d)` |
//! | own choice, draft coupled by [`invert`] | that of no speculation, byte by byte | no bound |
//! | own choice, draft a lookup or the drafter's best token `x` | that of no speculation, byte by byte | `p(x)` |
//! | [`speculative_choice`] | any text of the right distribution; it moves with the depth | `1 - d` |
//!
//! with `d = TV(p, q) = 1/2 sum |p - q|`. For a draft without probabilities (a lookup) own choice loses
//! nothing: `min(1, p/q)` accepts a point mass with `p(x)` too.
//!
//! # Which one
//! Where a text is promised, *own choice*: a row's token is what the target's sampler would have chosen there without any draft,
//! with the same key. Then speculation is invisible: a text does not depend on whether, with what and how
//! deep was drafted. `min(1, p/q)` keeps the distribution but not the text: which draws are used depends
//! on where drafts ended, the depth follows measured step times, and so one seed would give another text
//! on a busy machine. "Same seed, same text, whatever runs beside it" would be lost.
//!
//! The price is acceptance, and only with a draft *model* at temperatures above 0. The drafter earns most
//! of it back by choosing with the target's own randomness: with [`race`] both models hold the same
//! lottery tickets, one for each token, and the same token wins unless the models differ on it.
//! Acceptance over 400 pairs of distributions (vocabulary 2,000, Zipf-like, the drafter's logits off by
//! noise; `cargo run --release -p forespeak-speculation --example couplings`):
//!
//! | drafter's noise | `1 - d` | race | inversion | drafter's best token |
//! |---|---|---|---|---|
//! | 0.1 | 0.972 | 0.963 | 0.792 | 0.521 |
//! | 0.25 | 0.929 | 0.912 | 0.716 | 0.521 |
//! | 0.5 | 0.860 | 0.832 | 0.635 | 0.511 |
//! | 1 | 0.724 | 0.685 | 0.522 | 0.451 |
//! | 2 | 0.491 | 0.447 | 0.345 | 0.303 |
//!
//! So the race gives up one to four hundredths of acceptance for the promise, and inversion about twenty: the
//! target must choose by [`race`] too, whether or not it speculates. Where only the distribution is promised (sampling
//! without a seed) there is nothing to pay for, and [`speculative_choice`] is the better one.
//!
//! # Example
//! ```
//! use forespeak_speculation::verify::{Distribution, Verification, race};
//! use forespeak_speculation::PositionKey;
//!
//! let keys = [PositionKey(11), PositionKey(12), PositionKey(13)];
//! let target = Distribution::from_weights(&[0.1, 0.6, 0.3]);
//! let draft = [1, 2];
//! let mut walk = Verification::new(&draft);
//! let mut text = Vec::new();
//! while let Some(row) = walk.row() {
//!     // What would have been chosen here without a draft: `target` stands for the processed row.
//!     let token = race(&target, keys[row]).unwrap();
//!     text.push(token);
//!     walk.settle(token);
//! }
//! assert_eq!(text.len(), walk.accepted() + 1);
//! let alone: Vec<_> = keys.iter().map(|&key| race(&target, key).unwrap()).collect();
//! assert_eq!(text, alone[..text.len()]);
//! ```

mod coupled;
mod distribution;
mod rejection;
#[cfg(test)]
mod tests;

pub use coupled::{invert, race, race_among, race_weights};
pub use distribution::{Distribution, Weighted};
pub use rejection::{accepts_draft, instead_of_draft, speculative_choice, speculative_draft};

/// A walk over the rows of one draft.
#[derive(Debug, Clone)]
pub struct Verification<'a> {
    draft: &'a [u32],
    accepted: usize,
    over: bool,
}

/// What a choice did to the walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It equals the draft: the next row counts.
    Accepted,
    /// It differs from the draft: rows behind it are void.
    Corrected,
    /// All drafts were accepted and this came on top.
    Bonus,
}

impl<'a> Verification<'a> {
    /// Starts at row 0. An empty draft is a plain decoding step: one row, the bonus.
    pub fn new(draft: &'a [u32]) -> Self {
        Self {
            draft,
            accepted: 0,
            over: false,
        }
    }

    /// The row whose token is wanted next; `None` when the walk is over.
    pub fn row(&self) -> Option<usize> {
        (!self.over).then_some(self.accepted)
    }

    /// The draft at [`Verification::row`]; `None` at the bonus row.
    pub fn drafted(&self) -> Option<u32> {
        self.draft.get(self.accepted).copied()
    }

    /// Takes the token chosen for [`Verification::row`]. To end early (a stop token, a length) just stop
    /// asking for rows.
    pub fn settle(&mut self, token: u32) -> Settled {
        debug_assert!(!self.over, "no row was asked for");
        match self.drafted() {
            Some(drafted) if drafted == token => {
                self.accepted += 1;
                Settled::Accepted
            }
            drafted => {
                self.over = true;
                if drafted.is_some() {
                    Settled::Corrected
                } else {
                    Settled::Bonus
                }
            }
        }
    }

    /// Drafted tokens that were accepted so far. Rows of the KV cache up to and including these hold.
    pub fn accepted(&self) -> usize {
        self.accepted
    }
}
