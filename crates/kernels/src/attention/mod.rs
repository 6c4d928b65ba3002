//! Attention over paged keys and values.
//!
//! The context is cut at fixed positions into **splits** of 512 tokens. For one split a query's scores, its softmax
//! and its weighted sum of values are computed in an order that depends on positions alone; the splits' partial
//! results are merged in ascending order. Whether splits run one after the other in one task or side by side in
//! several, and which queries share a task, therefore never changes a bit.
//!
//! Keys and values are what costs time, so they are read once for a **tile** of queries: the heads that share a kv
//! head, and neighbouring rows of one sequence.

mod merge;
mod split;

use std::cell::RefCell;
use std::ops::Range;

use crate::compute::Compute;
use crate::kv_cache::{BLOCK_TOKENS, KvCache};
use crate::matmul::Scratch;
use crate::rope::Turn;
use crate::shared_out::SharedOut;
use crate::tier::Tier;
use merge::{Partial, finish, merge};
use split::{SCORES_STRIDE, SplitTask, attend_split};

/// Tokens in a split. Long enough that merging costs nothing, short enough that one long sequence gives every thread
/// work and that its keys and values stay in the second-level cache for a tile with many heads.
const SPLIT_TOKENS: usize = 512;
/// Splits become tasks of their own if there are fewer tiles than this for each thread.
const TILES_PER_THREAD: usize = 4;

/// Widths of tiles that kernels are compiled for.
const TILE_WIDTHS: [usize; 6] = [1, 2, 3, 4, 6, 8];

/// One row of a step: its table, as a range of [`Attention::tables`], and its position in its sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttentionRow {
    /// The row's block table within all tables.
    pub table: Range<usize>,
    /// The row's position; it attends to itself and to what comes before.
    pub position: usize,
}

/// What one layer's attention reads besides the cache.
#[derive(Clone, Copy)]
pub struct Attention<'a> {
    /// The layer.
    pub layer: usize,
    /// Query heads; a multiple of the cache's kv heads.
    pub heads: usize,
    /// What happens to the queries first.
    pub turn: Turn<'a>,
    /// What scores are multiplied with.
    pub scale: f32,
    /// How many of the last positions, its own included, a row attends to; `None` for all.
    pub window: Option<usize>,
    /// The rows; neighbours with equal tables are computed together.
    pub rows: &'a [AttentionRow],
    /// The block tables of all sequences, one after the other.
    pub tables: &'a [u32],
}

/// Partial results of splits that run as tasks of their own.
#[derive(Default)]
pub(crate) struct AttentionScratch {
    partials: Vec<f32>,
}

/// Queries that share a kv head and a table.
struct Tile {
    rows: Range<usize>,
    kv_head: usize,
    /// Of all query heads.
    heads: Range<usize>,
    /// Splits that any of the rows reaches.
    splits: Range<usize>,
}

impl Tile {
    /// Queries, padded to a width that kernels exist for.
    fn width(&self) -> usize {
        let queries = self.rows.len() * self.heads.len();
        TILE_WIDTHS
            .into_iter()
            .find(|width| *width >= queries)
            .unwrap_or(queries)
    }
}

/// One thread's buffers.
#[derive(Default)]
struct Workspace {
    /// One head between its turn and its layout.
    turned: Vec<f32>,
    queries: Vec<f32>,
    seen: Vec<Range<usize>>,
    scores: Vec<f32>,
    partials: Vec<f32>,
}

thread_local! {
    /// One thread's buffers, kept because tasks are short.
    static WORKSPACE: RefCell<Workspace> = RefCell::default();
}

/// Computes `out[m][heads * head_dim]` for `q` of the same shape; each row attends to the positions up to its own, or
/// to the last `window` of them. The rows' own keys and values must have been stored before.
///
/// # Panics
/// If the shapes do not fit, or a row needs a block outside of its table or the cache.
pub fn attend(
    compute: &Compute,
    scratch: &mut Scratch,
    cache: &KvCache,
    attention: &Attention<'_>,
    q: &[f32],
    out: &mut [f32],
) {
    let step = Step::new(compute, cache, attention, q);
    assert!(
        out.len() == q.len(),
        "out has {} values, q {}",
        out.len(),
        q.len()
    );
    let out = SharedOut::new(out);
    let tiles = step.tiles();
    let longest = tiles
        .iter()
        .map(|tile| tile.splits.len())
        .max()
        .unwrap_or(0);
    if longest <= 1 || tiles.len() >= compute.threads() * TILES_PER_THREAD || compute.threads() == 1
    {
        compute.run(tiles.len(), |index| step.whole_tile(&tiles[index], &out));
    } else {
        step.in_splits(&tiles, &mut scratch.attention.partials, &out);
    }
}

/// Everything that the tasks of one call share.
struct Step<'a> {
    compute: &'a Compute,
    cache: &'a KvCache,
    attention: &'a Attention<'a>,
    q: &'a [f32],
    /// Queries in a tile.
    tile_queries: usize,
}

impl<'a> Step<'a> {
    fn new(
        compute: &'a Compute,
        cache: &'a KvCache,
        attention: &'a Attention<'a>,
        q: &'a [f32],
    ) -> Step<'a> {
        let (heads, shape) = (attention.heads, cache.shape());
        assert!(
            heads > 0 && heads.is_multiple_of(shape.kv_heads),
            "{heads} heads over {} kv heads",
            shape.kv_heads
        );
        let row_len = heads * shape.head_dim;
        let rows = attention.rows.len();
        assert!(
            q.len() == rows * row_len,
            "q has {} values, not {rows} rows of {row_len}",
            q.len()
        );
        assert!(
            attention.layer < shape.layers,
            "layer {} of {}",
            attention.layer,
            shape.layers
        );
        assert!(
            attention.window != Some(0),
            "a window of no positions leaves nothing to attend to"
        );
        check_rows(
            attention.rows,
            attention.tables,
            |row| visible(row, attention.window),
            cache.blocks(),
        );
        // As many queries as the tier has registers to hold scores for.
        let tile_queries = match compute.tier() {
            Tier::Avx512 => 8,
            Tier::Scalar | Tier::Avx2 => 4,
        };
        Step {
            compute,
            cache,
            attention,
            q,
            tile_queries,
        }
    }

    /// Groups rows and heads. Only speed depends on how: tiles of one kv head stand together, so that threads, which take
    /// neighbours, read each its own keys, and have as much to do where an odd row is left over.
    fn tiles(&self) -> Vec<Tile> {
        let kv_heads = self.cache.shape().kv_heads;
        let group = self.attention.heads / kv_heads;
        let tile_heads = group.min(self.tile_queries);
        let runs = self.runs((self.tile_queries / tile_heads).max(1));
        let mut tiles = Vec::with_capacity(runs.len() * kv_heads);
        for kv_head in 0..kv_heads {
            let heads = kv_head * group..(kv_head + 1) * group;
            for (rows, splits) in &runs {
                for head in heads.clone().step_by(tile_heads) {
                    tiles.push(Tile {
                        rows: rows.clone(),
                        kv_head,
                        heads: head..heads.end.min(head + tile_heads),
                        splits: splits.clone(),
                    });
                }
            }
        }
        tiles
    }

    /// Neighbouring rows of one table, at most so many together, and the splits that any of them reaches.
    fn runs(&self, most: usize) -> Vec<(Range<usize>, Range<usize>)> {
        let rows = self.attention.rows;
        let mut runs = Vec::new();
        let mut first = 0;
        while let Some(row) = rows.get(first) {
            let run = rows[first..]
                .iter()
                .take(most)
                .take_while(|next| next.table == row.table)
                .count();
            let members = &rows[first..first + run];
            let seen = |row: &AttentionRow| visible(row, self.attention.window);
            let start = members.iter().map(|row| seen(row).start).min().unwrap_or(0);
            let end = members.iter().map(|row| seen(row).end).max().unwrap_or(0);
            let splits = start / SPLIT_TOKENS..end.div_ceil(SPLIT_TOKENS);
            runs.push((first..first + run, splits));
            first += run;
        }
        runs
    }

    /// All splits of a tile, one after the other.
    fn whole_tile(&self, tile: &Tile, out: &SharedOut<'_, f32>) {
        let (dim, width) = (self.cache.layout().padded_dim, tile.width());
        let len = Partial::len(dim, width);
        WORKSPACE.with_borrow_mut(|workspace| {
            self.lay_out(tile, workspace);
            workspace.partials.resize(2 * len, 0.0);
            let (total, next) = workspace.partials.split_at_mut(len);
            let (mut total, mut next) = (
                Partial::new(total, dim, width),
                Partial::new(next, dim, width),
            );
            total.clear();
            let mut task = self.task(
                tile,
                &workspace.queries,
                &workspace.seen,
                &mut workspace.scores,
            );
            for split in tile.splits.clone() {
                // SAFETY: `check_rows` has seen the table; the machine has the tier.
                unsafe {
                    attend_split(self.compute.tier(), &mut task, split, &mut next);
                    merge(self.compute.tier(), &mut total, &next);
                }
            }
            self.write(tile, &total, out);
        });
    }

    /// Every split as a task of its own, then a merge for each tile.
    fn in_splits(&self, tiles: &[Tile], buffer: &mut Vec<f32>, out: &SharedOut<'_, f32>) {
        let dim = self.cache.layout().padded_dim;
        let mut tasks = Vec::new();
        let mut starts = Vec::with_capacity(tiles.len());
        let mut size = 0;
        for (index, tile) in tiles.iter().enumerate() {
            starts.push(size);
            for split in tile.splits.clone() {
                tasks.push((index, split, size));
                size += Partial::len(dim, tile.width());
            }
        }
        buffer.resize(size, 0.0);
        let shared = SharedOut::new(buffer);
        self.compute.run(tasks.len(), |task| {
            let (index, split, start) = tasks[task];
            let tile = &tiles[index];
            WORKSPACE.with_borrow_mut(|workspace| {
                self.lay_out(tile, workspace);
                let mut task = self.task(
                    tile,
                    &workspace.queries,
                    &workspace.seen,
                    &mut workspace.scores,
                );
                // SAFETY: partial results do not overlap; `check_rows` has seen the table.
                unsafe {
                    let memory = shared.part(start, Partial::len(dim, tile.width()));
                    let mut partial = Partial::new(memory, dim, tile.width());
                    attend_split(self.compute.tier(), &mut task, split, &mut partial);
                }
            });
        });
        self.compute.run(tiles.len(), |index| {
            let tile = &tiles[index];
            let len = Partial::len(dim, tile.width());
            let mut memory = vec![0.0; len];
            let mut total = Partial::new(&mut memory, dim, tile.width());
            total.clear();
            for split in 0..tile.splits.len() {
                // SAFETY: the tasks that wrote the partial results are done; each is read by one tile only.
                unsafe {
                    let partial = Partial::new(
                        shared.part(starts[index] + split * len, len),
                        dim,
                        tile.width(),
                    );
                    merge(self.compute.tier(), &mut total, &partial);
                }
            }
            self.write(tile, &total, out);
        });
    }

    /// Turns a tile's queries and writes them as `[head_dim][width]`, with what each sees; padding repeats the first
    /// one's view.
    fn lay_out(&self, tile: &Tile, workspace: &mut Workspace) {
        let Workspace {
            turned,
            queries,
            seen,
            ..
        } = workspace;
        turned.resize(self.cache.layout().head_dim, 0.0);
        let attention = self.attention;
        let (head_dim, width) = (self.cache.layout().head_dim, tile.width());
        queries.clear();
        queries.resize(head_dim * width, 0.0);
        seen.clear();
        seen.resize(
            width,
            visible(&attention.rows[tile.rows.start], attention.window),
        );
        for (r, row) in tile.rows.clone().enumerate() {
            for (h, head) in tile.heads.clone().enumerate() {
                let query = r * tile.heads.len() + h;
                seen[query] = visible(&attention.rows[row], attention.window);
                let values = &self.q[(row * attention.heads + head) * head_dim..][..head_dim];
                let position = attention.rows[row].position;
                let turn = attention.turn;
                turn.apply(self.compute.tier(), values, position, turned);
                for (d, value) in turned.iter().enumerate() {
                    queries[d * width + query] = value * attention.scale;
                }
            }
        }
    }

    fn task<'w>(
        &'w self,
        tile: &Tile,
        queries: &'w [f32],
        seen: &'w [Range<usize>],
        scores: &'w mut Vec<f32>,
    ) -> SplitTask<'w> {
        let table = self.attention.rows[tile.rows.start].table.clone();
        scores.resize(tile.width() * SCORES_STRIDE, 0.0);
        SplitTask {
            width: tile.width(),
            queries,
            seen,
            scores,
            blocks: self.cache.head_blocks(self.attention.layer, tile.kv_head),
            table: &self.attention.tables[table],
        }
    }

    fn write(&self, tile: &Tile, total: &Partial<'_>, out: &SharedOut<'_, f32>) {
        let head_dim = self.cache.layout().head_dim;
        for (r, row) in tile.rows.clone().enumerate() {
            for (h, head) in tile.heads.clone().enumerate() {
                // SAFETY: a row's head belongs to one tile; the machine has the tier.
                unsafe {
                    let out = out.part((row * self.attention.heads + head) * head_dim, head_dim);
                    finish(self.compute.tier(), total, r * tile.heads.len() + h, out);
                }
            }
        }
    }
}

/// The positions that a row attends to.
fn visible(row: &AttentionRow, window: Option<usize>) -> Range<usize> {
    let end = row.position + 1;
    end - window.unwrap_or(end).min(end)..end
}

/// Asserts that every row's table exists, reaches over the positions in use, and names blocks of the cache there.
pub(crate) fn check_rows(
    rows: &[AttentionRow],
    tables: &[u32],
    in_use: impl Fn(&AttentionRow) -> Range<usize>,
    blocks: usize,
) {
    for row in rows {
        let table = tables.get(row.table.clone());
        let positions = in_use(row);
        let entries = positions.start / BLOCK_TOKENS..positions.end.div_ceil(BLOCK_TOKENS);
        let used = table.and_then(|table| table.get(entries));
        let known = used.is_some_and(|used| used.iter().all(|block| (*block as usize) < blocks));
        assert!(
            known,
            "{row:?} needs blocks that are not in its table or not in the cache of {blocks}"
        );
    }
}
