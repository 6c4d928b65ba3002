//! Partial results of attention, and how two of them become one.
//!
//! A partial result is the largest score, the sum of the weights relative to it, and the values weighted alike.
//! Merging brings both sides to the larger of their largest scores, as in online softmax.

use crate::lanes::{LANES, Lanes, exp, load_up_to, store_up_to};
use crate::tier::tiered;

/// A tile's partial result for one split, or merged over several.
pub(super) struct Partial<'a> {
    /// `[width][dim]`
    sums: &'a mut [f32],
    /// `[width]` largest scores, then `[width]` sums of weights.
    scales: &'a mut [f32],
    dim: usize,
}

impl<'a> Partial<'a> {
    /// How many values a partial result takes.
    pub(super) fn len(dim: usize, width: usize) -> usize {
        width * (dim + 2)
    }

    pub(super) fn new(memory: &'a mut [f32], dim: usize, width: usize) -> Partial<'a> {
        debug_assert_eq!(memory.len(), Partial::len(dim, width));
        let (sums, scales) = memory.split_at_mut(width * dim);
        Partial { sums, scales, dim }
    }

    /// The result over no tokens at all.
    pub(super) fn clear(&mut self) {
        self.sums.fill(0.0);
        let (largest, weights) = self.scales.split_at_mut(self.scales.len() / 2);
        largest.fill(f32::NEG_INFINITY);
        weights.fill(0.0);
    }

    pub(super) fn set(&mut self, query: usize, largest: f32, weights: f32) {
        let width = self.width();
        self.scales[query] = largest;
        self.scales[width + query] = weights;
    }

    pub(super) fn sums(&mut self) -> *mut f32 {
        self.sums.as_mut_ptr()
    }

    fn width(&self) -> usize {
        self.scales.len() / 2
    }
}

tiered!(pub(super) fn merge(total: &mut Partial<'_>, next: &Partial<'_>) = merge_with);

/// Merges the next split into the total.
#[inline(always)]
unsafe fn merge_with<L: Lanes>(total: &mut Partial<'_>, next: &Partial<'_>) {
    let (width, dim) = (total.width(), total.dim);
    for query in 0..width {
        let (old, new) = (total.scales[query], next.scales[query]);
        // A split in which a query sees nothing must leave no trace: rows computed alone never meet it.
        if new == f32::NEG_INFINITY {
            continue;
        }
        let largest = if old > new { old } else { new };
        let (keep, add) = (exp(L::splat(old - largest)), exp(L::splat(new - largest)));
        let weights = L::splat(next.scales[width + query])
            .fma(add, L::splat(total.scales[width + query]).mul(keep));
        total.scales[query] = largest;
        total.scales[width + query] = weights.largest();
        for at in (query * dim..(query + 1) * dim).step_by(LANES) {
            let sums = total.sums[at..].as_mut_ptr();
            let kept = L::load(sums).mul(keep);
            L::load(next.sums[at..].as_ptr()).fma(add, kept).store(sums);
        }
    }
}

tiered!(pub(super) fn finish(total: &Partial<'_>, query: usize, out: &mut [f32]) = finish_with);

/// Writes a query's weighted mean of values.
#[inline(always)]
unsafe fn finish_with<L: Lanes>(total: &Partial<'_>, query: usize, out: &mut [f32]) {
    let weights = L::splat(total.scales[total.width() + query]);
    for at in (0..out.len()).step_by(LANES) {
        let sums = load_up_to::<L>(total.sums[query * total.dim + at..].as_ptr(), LANES);
        store_up_to(sums.div(weights), out[at..].as_mut_ptr(), out.len() - at);
    }
}
