//! Rotary position embedding with half-split pairs: dimension i turns together with dimension i + half.

use std::sync::OnceLock;

use crate::compute::Compute;
use crate::elementwise::for_each_row_chunk;
use crate::lanes::{LANES, Lanes, load_up_to, store_up_to};
use crate::shared_out::SharedOut;
use crate::tier::tiered;

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

/// Turns every head of `x`, `[positions.len()][heads][head_dim]`, by its row's position. A table with fewer than
/// `head_dim / 2` frequencies turns the first dimensions only.
///
/// # Panics
/// If the shapes do not fit or a position lies outside the table.
pub fn rope(
    compute: &Compute,
    x: &mut [f32],
    heads: usize,
    head_dim: usize,
    positions: &[u32],
    table: &RopeTable,
) {
    let row_len = heads * head_dim;
    let half = table.inv_freq.len();
    assert!(
        x.len() == positions.len() * row_len,
        "{} values are not {} rows of {row_len}",
        x.len(),
        positions.len()
    );
    assert!(
        2 * half <= head_dim,
        "{half} frequencies do not fit heads of {head_dim}"
    );
    let inside = positions
        .iter()
        .all(|position| (*position as usize) < table.max_positions);
    assert!(
        inside,
        "a position lies outside of the table's {}",
        table.max_positions
    );
    let out = SharedOut::new(x);
    for_each_row_chunk(compute, positions.len(), row_len, |rows| {
        for row in rows {
            let (cosines, sines) = table.angles(positions[row] as usize);
            // SAFETY: every row belongs to one chunk.
            let row = unsafe { out.part(row * row_len, row_len) };
            for head in row.chunks_exact_mut(head_dim) {
                // SAFETY: the machine has the tier; a head holds both halves.
                unsafe { turn(compute.tier(), head, cosines, sines) };
            }
        }
    });
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
    use crate::tier::Tier;

    #[test]
    fn pairs_turn_by_position_times_frequency() {
        let compute = Compute::new(Tier::detect(), 1);
        let inv_freq: Vec<f32> = (0..20)
            .map(|i| 10_000_f32.powf(-(i as f32) / 20.0))
            .collect();
        let table = RopeTable::new(&inv_freq, 1.0, 1000);
        let x: Vec<f32> = (0..2 * 3 * 41).map(|i| (i as f32).sin()).collect();
        let mut out = x.clone();
        rope(&compute, &mut out, 3, 41, &[0, 999], &table);
        assert_eq!(out[..3 * 41], x[..3 * 41], "position 0 turns nothing");
        for head in 3..6 {
            let (x, out) = (&x[head * 41..], &out[head * 41..]);
            for i in 0..20 {
                let (sine, cosine) = f64::from(999.0 * inv_freq[i]).sin_cos();
                let (a, b) = (f64::from(x[i]), f64::from(x[i + 20]));
                assert!((f64::from(out[i]) - (a * cosine - b * sine)).abs() < 1e-6);
                assert!((f64::from(out[i + 20]) - (b * cosine + a * sine)).abs() < 1e-6);
            }
            assert_eq!(out[40], x[40], "dimensions without a frequency stay");
        }
    }
}
