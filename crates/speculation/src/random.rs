//! Randomness as a value: a key for each position of an answer, and independent numbers out of it.
//!
//! Whoever owns a sequence makes the key out of (seed, choice, position), so a position that is computed
//! again, by whoever and in whatever batch, draws the same numbers.

/// All randomness of one position of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PositionKey(pub u64);

/// Independent numbers out of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Lane {
    /// The token itself, by inversion.
    Token = 1,
    /// Whether a draft is accepted.
    Accept = 2,
    /// What stands in for a rejected draft.
    Resample = 3,
    /// The drafter's own choice, where it must be independent of [`Lane::Accept`].
    Draft = 4,
}

/// Keeps the numbers of the race for tokens apart from those of the lanes.
const RACE: u64 = 0x5bd1_e995_7b7d_159b;

/// Numbers that [`PositionKey::coarse`] can give.
pub(crate) const COARSE: f64 = (1u64 << 32) as f64;

impl PositionKey {
    /// A number in `[0, 1)`.
    pub fn uniform(self, lane: Lane) -> f64 {
        unit(mix(self.0 ^ mix(lane as u64)))
    }

    /// A number in `[0, 1)` for one token of the vocabulary; the same for whoever asks.
    pub(crate) fn of_token(self, id: u32) -> f64 {
        let fine = (self.0 ^ RACE).wrapping_add(u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (f64::from(self.coarse(id)) + unit(mix(fine))) / COARSE
    }

    /// The first 32 bits of that number. They are all that it takes to know of most tokens that they are not the one, and
    /// come from multiplications of 32 bits, of which a processor does many at a time.
    #[inline(always)]
    pub(crate) fn coarse(self, id: u32) -> u32 {
        let x = id.wrapping_mul(0x9e37_79b1) ^ self.0 as u32;
        let x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
        let x = x ^ (x >> 15) ^ (self.0 >> 32) as u32;
        let x = x.wrapping_mul(0x846c_a68b);
        let x = (x ^ (x >> 16)).wrapping_mul(0x9e48_5565);
        x ^ (x >> 16)
    }
}

/// The finaliser of splitmix64: every bit of the input moves every bit of the result.
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The 53 bits that a double can hold, as a number in `[0, 1)`.
pub(crate) fn unit(x: u64) -> f64 {
    (x >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_and_tokens_draw_numbers_that_spread_evenly_and_do_not_follow_each_other() {
        let mut cells = [[0usize; 4]; 4];
        let mut tokens = [[0usize; 4]; 4];
        for position in 0..16_000u64 {
            let key = PositionKey(position);
            let cell = |u: f64| ((u * 4.0) as usize).min(3);
            cells[cell(key.uniform(Lane::Accept))][cell(key.uniform(Lane::Resample))] += 1;
            tokens[cell(key.of_token(7))][cell(key.of_token(8))] += 1;
        }
        for count in cells.iter().chain(&tokens).flatten() {
            assert!((850..1150).contains(count), "{cells:?} {tokens:?}");
        }
    }
}
