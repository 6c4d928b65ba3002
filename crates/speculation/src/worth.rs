//! When a draft is long enough: what one more token promises against what it costs, at the price that time has.
//!
//! So a draft ends where this text becomes hard to guess, not where texts do on average:
//! - a token is *kept* if it, and perhaps some behind it, are worth their rows of the verification: its pass is paid
//!   already;
//! - the draft *goes on* if the same holds for rows and passes of tokens that nobody has seen yet.
//!
//! "And perhaps some behind it": rows are computed in groups, so that the second row of a draft may cost as much as the
//! second and the third together. A token pays if any beginning of what may follow pays:
//! `survival (1 + chance + chance^2 + ...) >= price * (rows(n + k) - rows(n) + passes)` for some `k`.
//!
//! # Example
//! ```
//! use forespeak_speculation::Worth;
//!
//! // Two thousand tokens a second; a row of the verification takes 0.1 ms, a pass of the drafter 0.1 ms.
//! let worth = Worth::even(2_000.0, 1e-4, 1e-4);
//! assert!(worth.keeps(0, 0.25, 0.7) && !worth.keeps(0, 0.15, 0.7));
//! assert!(worth.goes_on(1, 0.9, 0.7, 1) && !worth.goes_on(1, 0.5, 0.7, 1));
//! assert!(worth.goes_on(1, 0.5, 0.7, 4)); // four sequences share the pass
//! ```

use crate::acceptance::MAX_DEPTH;

/// What one more token of a draft must bring. The default asks for nothing: drafts get as long as planned.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Worth {
    /// Tokens per second that time is worth.
    pub price: f64,
    /// Seconds of the verification for a draft of so many tokens, over those for none.
    pub rows: [f64; MAX_DEPTH + 1],
    /// Seconds for a pass of the drafter, whoever is in it.
    pub pass: f64,
    /// Seconds for each sequence in it.
    pub more: f64,
}

impl Worth {
    /// Every row takes `row` seconds, a pass `pass`.
    pub fn even(price: f64, row: f64, pass: f64) -> Self {
        Self {
            price,
            rows: std::array::from_fn(|drafted| row * drafted as f64),
            pass,
            more: 0.0,
        }
    }

    /// Whether a token drafted behind `kept` others should be verified: it survives with the chance `survival`, and each
    /// that may follow with `chance` times the one before.
    pub fn keeps(&self, kept: usize, survival: f64, chance: f64) -> bool {
        self.pays(kept, survival, chance, self.pass + self.more, 0)
    }

    /// Whether to draft one more behind `kept` tokens that survive with the chance `survival`, in a pass of `sequences`.
    pub fn goes_on(&self, kept: usize, survival: f64, chance: f64, sequences: usize) -> bool {
        let pass = self.pass / sequences.max(1) as f64 + self.more;
        self.pays(kept, survival * chance, chance, pass, 1)
    }

    /// Whether it asks for anything.
    pub fn is_nothing(&self) -> bool {
        self.price <= 0.0
    }

    /// Whether some tokens behind `kept` are worth their time, where the first of them takes `passes` passes and each
    /// further one another.
    fn pays(&self, kept: usize, first: f64, chance: f64, pass: f64, passes: usize) -> bool {
        if self.is_nothing() {
            return true;
        }
        let before = self.rows.get(kept).copied().unwrap_or(f64::MAX);
        let (mut tokens, mut survival) = (0.0, first);
        self.rows
            .iter()
            .skip(kept + 1)
            .enumerate()
            .any(|(further, rows)| {
                tokens += survival;
                survival *= chance;
                let seconds = rows - before + pass * (passes + further) as f64;
                tokens >= self.price * seconds
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_asked_means_everything_goes_on() {
        let worth = Worth::default();
        assert!(worth.is_nothing() && worth.keeps(0, 0.0, 0.0) && worth.goes_on(3, 0.0, 0.0, 1));
    }

    #[test]
    fn no_draft_is_longer_than_any_may_be() {
        let worth = Worth::even(1_000.0, 1e-5, 0.0);
        assert!(worth.keeps(MAX_DEPTH - 1, 0.9, 0.9));
        assert!(!worth.keeps(MAX_DEPTH, 0.9, 0.9) && !worth.goes_on(MAX_DEPTH, 0.9, 0.9, 1));
    }

    #[test]
    fn a_dear_row_is_paid_by_the_cheap_ones_behind_it() {
        // The second row begins a group of three.
        let mut worth = Worth::even(2_000.0, 0.0, 0.0);
        worth.rows = std::array::from_fn(|drafted| if drafted >= 2 { 4e-4 } else { 1e-4 });
        assert!(!worth.keeps(1, 0.5, 0.1), "nothing follows");
        assert!(worth.keeps(1, 0.5, 0.6), "half a token and more follow");
        assert!(worth.keeps(2, 0.01, 0.1), "the group is paid");
    }
}
