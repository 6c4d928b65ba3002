//! Rotary position embedding with half-split pairs: dimension i turns together with dimension i + half.

use std::sync::OnceLock;

use crate::lanes::{LANES, Lanes, load_up_to, store_up_to};
use crate::norm::Norm;
use crate::tier::{Tier, tiered};

/// Positions in a page of the table. Pages are filled when first used: a model made for 131,072 positions would
/// otherwise carry 64 MB of angles that most requests never reach.
const PAGE_POSITIONS: usize = 256;

/// Cosines and sines for every position.
pub struct RopeTable {
    inv_freq: Vec<f32>,
    scale: f32,
    max_positions: usize,
    /// `[position][cosines | sines]`
    pages: Vec<OnceLock<Box<[f32]>>>,
}

impl RopeTable {
    /// `inv_freq` holds one inverse frequency for each pair of dimensions; `scale` multiplies cosines and sines
    /// (1 for most models).
    pub fn new(inv_freq: &[f32], scale: f32, max_positions: usize) -> Self {
        let pages = (0..max_positions.div_ceil(PAGE_POSITIONS))
            .map(|_| OnceLock::new())
            .collect();
        RopeTable {
            inv_freq: inv_freq.to_vec(),
            scale,
            max_positions,
            pages,
        }
    }

    /// The cosines and the sines at a position.
    fn angles(&self, position: usize) -> (&[f32], &[f32]) {
        assert!(
            position < self.max_positions,
            "position {position} lies outside of the table's {}",
            self.max_positions
        );
        let half = self.inv_freq.len();
        let page = self.pages[position / PAGE_POSITIONS]
            .get_or_init(|| self.page(position / PAGE_POSITIONS));
        page[position % PAGE_POSITIONS * 2 * half..][..2 * half].split_at(half)
    }

    /// The angle is a product of f32 values, as model code has it; what follows is rounded once.
    fn page(&self, index: usize) -> Box<[f32]> {
        let mut page = Vec::with_capacity(PAGE_POSITIONS * 2 * self.inv_freq.len());
        for position in index * PAGE_POSITIONS..(index + 1) * PAGE_POSITIONS {
            let angle = |freq: &f32| f64::from(position as f32 * freq);
            page.extend(
                self.inv_freq
                    .iter()
                    .map(|freq| angle(freq).cos() as f32 * self.scale),
            );
            page.extend(
                self.inv_freq
                    .iter()
                    .map(|freq| angle(freq).sin() as f32 * self.scale),
            );
        }
        page.into_boxed_slice()
    }
}

/// What happens to a head of queries or keys before they meet: it is normalised, if the model does that, and turned by
/// its position. A table with fewer than `head_dim / 2` frequencies turns the first dimensions only.
#[derive(Clone, Copy)]
pub struct Turn<'a> {
    /// Over the values of one head.
    pub norm: Option<Norm<'a>>,
    /// The angles.
    pub table: &'a RopeTable,
}

impl Turn<'_> {
    /// Writes the turned `head` to `out`.
    ///
    /// # Panics
    /// If the position lies outside of the table, or the head is too short for it.
    pub(crate) fn apply(self, tier: Tier, head: &[f32], position: usize, out: &mut [f32]) {
        let (cosines, sines) = self.table.angles(position);
        assert!(
            2 * cosines.len() <= out.len(),
            "{} frequencies do not fit heads of {}",
            cosines.len(),
            out.len()
        );
        match self.norm {
            Some(norm) => norm.apply(tier, head, out),
            None => out.copy_from_slice(head),
        }
        // SAFETY: tiers in use are those that the machine has; the head holds both halves.
        unsafe { turn(tier, out, cosines, sines) };
    }
}

tiered!(fn turn(head: &mut [f32], cosines: &[f32], sines: &[f32]) = turn_with);

#[inline(always)]
unsafe fn turn_with<L: Lanes>(head: &mut [f32], cosines: &[f32], sines: &[f32]) {
    let half = cosines.len();
    let first = head.as_mut_ptr();
    let second = first.add(half);
    for at in (0..half).step_by(LANES) {
        let len = half - at;
        let (a, b) = (
            load_up_to::<L>(first.add(at), len),
            load_up_to::<L>(second.add(at), len),
        );
        let cosine = load_up_to::<L>(cosines.as_ptr().add(at), len);
        let sine = load_up_to::<L>(sines.as_ptr().add(at), len);
        store_up_to(a.mul(cosine).sub(b.mul(sine)), first.add(at), len);
        store_up_to(b.mul(cosine).add(a.mul(sine)), second.add(at), len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_turn_by_position_times_frequency() {
        let inv_freq: Vec<f32> = (0..20)
            .map(|i| 10_000_f32.powf(-(i as f32) / 20.0))
            .collect();
        let turn = Turn {
            norm: None,
            table: &RopeTable::new(&inv_freq, 1.0, 1000),
        };
        let x: Vec<f32> = (0..41).map(|i| (i as f32).sin()).collect();
        let mut out = vec![0.0; 41];
        turn.apply(Tier::detect(), &x, 0, &mut out);
        assert_eq!(out, x, "position 0 turns nothing");
        turn.apply(Tier::detect(), &x, 999, &mut out);
        for i in 0..20 {
            let (sine, cosine) = f64::from(999.0 * inv_freq[i]).sin_cos();
            let (a, b) = (f64::from(x[i]), f64::from(x[i + 20]));
            assert!((f64::from(out[i]) - (a * cosine - b * sine)).abs() < 1e-6);
            assert!((f64::from(out[i + 20]) - (b * cosine + a * sine)).abs() < 1e-6);
        }
        assert_eq!(out[40], x[40], "dimensions without a frequency stay");
    }

    #[test]
    fn tiers_agree_to_the_bit_at_any_length() {
        for n in 1..200 {
            let values = |start: f32| -> Vec<f32> {
                (0..n)
                    .map(|i| (start + i as f32 * 0.7).sin() * 20.0)
                    .collect()
            };
            let inv_freq: Vec<f32> = (0..n / 2)
                .map(|i| 1e4_f32.powf(-2.0 * i as f32 / n as f32))
                .collect();
            let turn = Turn {
                norm: Some(Norm {
                    weight: &values(1.0),
                    eps: 1e-6,
                }),
                table: &RopeTable::new(&inv_freq, 1.0, 1000),
            };
            let with = |tier: Tier| {
                let mut out = vec![0.0; n];
                turn.apply(tier, &values(0.0), 37 * n % 1000, &mut out);
                out.into_iter().map(f32::to_bits).collect::<Vec<u32>>()
            };
            for tier in Tier::ALL.into_iter().filter(|tier| *tier <= Tier::detect()) {
                assert_eq!(with(tier), with(Tier::Scalar), "{tier} at {n}");
            }
        }
    }
}
