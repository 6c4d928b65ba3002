//! One split of the context for one tile of queries: scores, softmax, weighted values.

use std::ops::Range;

use super::SPLIT_TOKENS;
use super::merge::Partial;
use crate::kv_cache::{BLOCK_TOKENS, HeadBlocks, KvType};
use crate::lanes::{LANES, Lanes, exp};
use crate::prefetch::{LINE, prefetch_far};
use crate::tier::{Tier, tiered};

/// Queries' scores lie a little more than a power of two apart, so that they do not fight for one cache set.
pub(super) const SCORES_STRIDE: usize = SPLIT_TOKENS + LANES;

/// A tile's queries and what they look at.
pub(super) struct SplitTask<'w> {
    /// Queries with padding: one of [`super::TILE_WIDTHS`].
    pub(super) width: usize,
    /// `[head_dim][width]`, scaled.
    pub(super) queries: &'w [f32],
    /// The positions that each query sees.
    pub(super) seen: &'w [Range<usize>],
    /// `[width][SCORES_STRIDE]`, for scores and then for weights.
    pub(super) scores: &'w mut [f32],
    pub(super) blocks: HeadBlocks,
    /// The sequence's blocks from position 0 on.
    pub(super) table: &'w [u32],
}

impl SplitTask<'_> {
    /// Where the sequence's `index`-th block lies, if it has one; for prefetching only.
    #[inline(always)]
    fn hint(&self, index: usize) -> *const u8 {
        self.table
            .get(index)
            .map_or(std::ptr::null(), |block| self.blocks.hint(*block))
    }
}

/// Computes one split into `partial`.
///
/// # Safety
/// The machine must have `tier`, and the task's table must name blocks of its cache wherever its queries look.
pub(super) unsafe fn attend_split(
    tier: Tier,
    task: &mut SplitTask<'_>,
    split: usize,
    partial: &mut Partial<'_>,
) {
    tiered!(fn one(task: &mut SplitTask<'_>, split: usize, partial: &mut Partial<'_>) = attend_with, 1);
    tiered!(fn two(task: &mut SplitTask<'_>, split: usize, partial: &mut Partial<'_>) = attend_with, 2);
    tiered!(fn three(task: &mut SplitTask<'_>, split: usize, partial: &mut Partial<'_>) = attend_with, 3);
    tiered!(fn four(task: &mut SplitTask<'_>, split: usize, partial: &mut Partial<'_>) = attend_with, 4);
    tiered!(fn six(task: &mut SplitTask<'_>, split: usize, partial: &mut Partial<'_>) = attend_with, 6);
    tiered!(fn eight(task: &mut SplitTask<'_>, split: usize, partial: &mut Partial<'_>) = attend_with, 8);
    match task.width {
        1 => one(tier, task, split, partial),
        2 => two(tier, task, split, partial),
        3 => three(tier, task, split, partial),
        4 => four(tier, task, split, partial),
        6 => six(tier, task, split, partial),
        _ => eight(tier, task, split, partial),
    }
}

/// How keys and values are read.
trait Element {
    const BYTES: usize;
    /// Whether each token has a scale.
    const SCALED: bool;
    unsafe fn load<L: Lanes>(from: *const u8) -> L;
}

struct F16;
struct Int8;

impl Element for F16 {
    const BYTES: usize = 2;
    const SCALED: bool = false;
    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const u8) -> L {
        L::load_f16(from.cast())
    }
}

impl Element for Int8 {
    const BYTES: usize = 1;
    const SCALED: bool = true;
    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const u8) -> L {
        L::load_i8(from.cast())
    }
}

#[inline(always)]
unsafe fn attend_with<L: Lanes, const Q: usize>(
    task: &mut SplitTask<'_>,
    split: usize,
    partial: &mut Partial<'_>,
) {
    match task.blocks.layout.kv_type {
        KvType::F16 => attend_elements::<L, F16, Q>(task, split, partial),
        KvType::Int8 => attend_elements::<L, Int8, Q>(task, split, partial),
    }
}

#[inline(always)]
unsafe fn attend_elements<L: Lanes, E: Element, const Q: usize>(
    task: &mut SplitTask<'_>,
    split: usize,
    partial: &mut Partial<'_>,
) {
    let first = split * SPLIT_TOKENS;
    let start = task
        .seen
        .iter()
        .map(|seen| seen.start)
        .min()
        .unwrap_or(0)
        .max(first);
    let end = task
        .seen
        .iter()
        .map(|seen| seen.end)
        .max()
        .unwrap_or(0)
        .min(first + SPLIT_TOKENS);
    partial.clear();
    if start >= end {
        return;
    }
    let blocks = start / BLOCK_TOKENS..end.div_ceil(BLOCK_TOKENS);
    score_blocks::<L, E, Q>(task, first, blocks.clone());
    let columns = blocks.start * BLOCK_TOKENS - first..blocks.end * BLOCK_TOKENS - first;
    for query in 0..Q {
        let scores = &mut task.scores[query * SCORES_STRIDE..][columns.clone()];
        mask(scores, first + columns.start, &task.seen[query]);
        let (max, sum) = softmax::<L>(scores);
        partial.set(query, max, sum);
    }
    for block in blocks {
        let place = task.blocks.block(task.table[block]);
        let tokens = block * BLOCK_TOKENS;
        let weights = task.scores[tokens - first..].as_mut_ptr();
        if E::SCALED {
            let scales = place.add(task.blocks.layout.scales_at).cast::<f32>();
            scale_tokens::<L, Q>(weights, scales.add(BLOCK_TOKENS));
        }
        let values_at = task.blocks.layout.values_at;
        let values = Values {
            place: place.add(values_at),
            next: task.hint(block + 1).wrapping_add(values_at),
            dim: task.blocks.layout.padded_dim,
            tokens: start.max(tokens) - tokens..end.min(tokens + BLOCK_TOKENS) - tokens,
        };
        add_block::<L, E, Q>(&values, weights, partial);
    }
}

/// The values of one block.
struct Values {
    /// `[16][dim]`
    place: *const u8,
    /// The same of the block that follows, to be prefetched.
    next: *const u8,
    dim: usize,
    /// Those of the block's tokens that any query sees.
    tokens: Range<usize>,
}

/// Scores of all blocks. Where queries are few, several blocks are computed side by side: the sums of one would
/// wait for themselves.
#[inline(always)]
unsafe fn score_blocks<L: Lanes, E: Element, const Q: usize>(
    task: &mut SplitTask<'_>,
    first: usize,
    blocks: Range<usize>,
) {
    let mut block = blocks.start;
    while block < blocks.end {
        let left = blocks.end - block;
        let done = match Q {
            1 if left >= 4 => score::<L, E, Q, 4>(task, first, block),
            2 if left >= 4 => score::<L, E, Q, 4>(task, first, block),
            3 | 4 if left >= 2 => score::<L, E, Q, 2>(task, first, block),
            _ => score::<L, E, Q, 1>(task, first, block),
        };
        block += done;
    }
}

/// Scores of `B` blocks; lanes are tokens.
#[inline(always)]
unsafe fn score<L: Lanes, E: Element, const Q: usize, const B: usize>(
    task: &mut SplitTask<'_>,
    first: usize,
    block: usize,
) -> usize {
    let layout = task.blocks.layout;
    let mut keys = [std::ptr::null(); B];
    for (i, keys) in keys.iter_mut().enumerate() {
        *keys = task.blocks.block(task.table[block + i]);
    }
    let mut next = [std::ptr::null(); B];
    for (i, next) in next.iter_mut().enumerate() {
        *next = task.hint(block + B + i);
    }
    let mut scores = [[L::splat(0.0); Q]; B];
    let mut query = task.queries.as_ptr();
    for d in 0..layout.head_dim {
        for (scores, (keys, next)) in scores.iter_mut().zip(keys.into_iter().zip(next)) {
            if d.is_multiple_of(LINE / (BLOCK_TOKENS * E::BYTES)) {
                prefetch_far(next.wrapping_add(d * BLOCK_TOKENS * E::BYTES), LINE);
            }
            let keys = E::load::<L>(keys.add(d * BLOCK_TOKENS * E::BYTES));
            for (q, score) in scores.iter_mut().enumerate() {
                *score = keys.fma(L::splat(*query.add(q)), *score);
            }
        }
        query = query.add(Q);
    }
    for (i, scores) in scores.into_iter().enumerate() {
        let to = task.scores[(block + i) * BLOCK_TOKENS - first..].as_mut_ptr();
        for (q, score) in scores.into_iter().enumerate() {
            let scaled = if E::SCALED {
                score.mul(L::load(keys[i].add(layout.scales_at).cast()))
            } else {
                score
            };
            scaled.store(to.add(q * SCORES_STRIDE));
        }
    }
    B
}

/// Sets the scores of tokens that are not seen to minus infinity; `scores` starts at position `first`.
#[inline(always)]
fn mask(scores: &mut [f32], first: usize, seen: &Range<usize>) {
    let len = scores.len();
    let before = seen.start.saturating_sub(first).min(len);
    let from = seen.end.saturating_sub(first).min(len);
    scores[..before].fill(f32::NEG_INFINITY);
    scores[from..].fill(f32::NEG_INFINITY);
}

/// Turns scores into weights relative to their largest; gives the largest score and the weights' sum.
#[inline(always)]
unsafe fn softmax<L: Lanes>(scores: &mut [f32]) -> (f32, f32) {
    let (len, scores) = (scores.len(), scores.as_mut_ptr());
    let mut largest = L::splat(f32::NEG_INFINITY);
    for at in (0..len).step_by(LANES) {
        largest = L::load(scores.add(at)).max(largest);
    }
    let largest = largest.largest();
    let mut sum = L::splat(0.0);
    // Where nothing is seen, subtracting minus infinity from itself would give not-a-number.
    let shift = L::splat(if largest == f32::NEG_INFINITY {
        0.0
    } else {
        largest
    });
    for at in (0..len).step_by(LANES) {
        let weights = exp(L::load(scores.add(at)).sub(shift));
        weights.store(scores.add(at));
        sum = sum.add(weights);
    }
    (largest, sum.sum())
}

/// Multiplies every query's weights for a block with its tokens' scales.
#[inline(always)]
unsafe fn scale_tokens<L: Lanes, const Q: usize>(weights: *mut f32, scales: *const f32) {
    let scales = L::load(scales);
    for query in 0..Q {
        let weights = weights.add(query * SCORES_STRIDE);
        L::load(weights).mul(scales).store(weights);
    }
}

/// Adds a block's weighted values; lanes are dimensions. As many of them at once as the tier has registers for.
#[inline(always)]
unsafe fn add_block<L: Lanes, E: Element, const Q: usize>(
    values: &Values,
    weights: *const f32,
    partial: &mut Partial<'_>,
) {
    let sums = partial.sums();
    let mut at = 0;
    while at < values.dim {
        let left = (values.dim - at) / LANES;
        let sums = sums.add(at);
        let done = match L::SUMS / Q {
            8.. if left >= 8 => add_values::<L, E, Q, 8>(values, at, weights, sums),
            4.. if left >= 4 => add_values::<L, E, Q, 4>(values, at, weights, sums),
            2.. if left >= 2 => add_values::<L, E, Q, 2>(values, at, weights, sums),
            _ => add_values::<L, E, Q, 1>(values, at, weights, sums),
        };
        at += done * LANES;
    }
}

/// Adds `C` lanes of dimensions from `at` on for all tokens.
#[inline(always)]
unsafe fn add_values<L: Lanes, E: Element, const Q: usize, const C: usize>(
    values: &Values,
    at: usize,
    weights: *const f32,
    to: *mut f32,
) -> usize {
    let mut sums = [[L::splat(0.0); C]; Q];
    for (q, sums) in sums.iter_mut().enumerate() {
        for (c, sum) in sums.iter_mut().enumerate() {
            *sum = L::load(to.add(q * values.dim + c * LANES));
        }
    }
    for token in values.tokens.clone() {
        let offset = (token * values.dim + at) * E::BYTES;
        prefetch_far(values.next.wrapping_add(offset), C * LANES * E::BYTES);
        for c in 0..C {
            let lanes = E::load::<L>(values.place.add(offset + c * LANES * E::BYTES));
            for (q, sums) in sums.iter_mut().enumerate() {
                sums[c] = lanes.fma(L::splat(*weights.add(q * SCORES_STRIDE + token)), sums[c]);
            }
        }
    }
    for (q, sums) in sums.iter().enumerate() {
        for (c, sum) in sums.iter().enumerate() {
            sum.store(to.add(q * values.dim + c * LANES));
        }
    }
    C
}
