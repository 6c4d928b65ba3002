//! How panels and rows are cut into chunks for threads.

use std::ops::Range;

use super::panel::{STRIP_ROWS, panels_at_once};
use crate::activations::{RowTile, Tiling};
use crate::compute::Compute;
use crate::matrix::Matrix;

/// Chunks for each thread, so that one that is slow can take fewer.
const CHUNKS_PER_THREAD: usize = 16;
/// Weights in a chunk: enough to be worth handing out.
const SMALLEST_CHUNK_BYTES: usize = 32 << 10;

/// Matrices whose panels are taken together: those of one number are one piece of work.
#[derive(Clone)]
pub(super) struct PanelSet {
    panels: usize,
    /// Of one piece.
    bytes: usize,
}

impl PanelSet {
    /// Matrices with equally many outputs.
    pub(super) fn of(matrices: &[&Matrix]) -> PanelSet {
        PanelSet {
            panels: matrices.first().map_or(0, |matrix| matrix.panels()),
            bytes: matrices.iter().map(|matrix| matrix.panel_bytes()).sum(),
        }
    }
}

/// Neighbouring tiles of rows that a panel is multiplied with in one go.
#[derive(Clone)]
pub(super) struct Strip {
    tiling: Tiling,
    tiles: Range<usize>,
}

impl Strip {
    pub(super) fn tiles(&self) -> impl Iterator<Item = RowTile> {
        let tiling = self.tiling;
        self.tiles.clone().map(move |index| tiling.tile(index))
    }

    /// How many tiles.
    pub(super) fn len(&self) -> usize {
        self.tiles.len()
    }

    pub(super) fn rows(&self) -> Range<usize> {
        let width = self.tiling.width();
        self.tiles.start * width..(self.tiles.end * width).min(self.tiling.rows())
    }
}

/// The chunks of a loop over all panels of some sets, and over all rows.
pub(super) struct Cuts {
    tiling: Tiling,
    tiles_per_strip: usize,
    panels_at_once: usize,
    /// Rows are cut as well where there are fewer chunks of panels than the threads want.
    row_cuts: usize,
    strips_per_cut: usize,
    sets: Vec<CutSet>,
    threads: usize,
}

struct CutSet {
    panels: usize,
    panels_per_chunk: usize,
    chunks: usize,
}

impl Cuts {
    pub(super) fn new(
        compute: &Compute,
        tiling: Tiling,
        sets: impl Iterator<Item = PanelSet> + Clone,
    ) -> Cuts {
        let total: usize = sets.clone().map(|set| set.panels * set.bytes).sum();
        let threads = compute.threads_for(total, tiling.rows());
        let wanted = threads * CHUNKS_PER_THREAD;
        let chunk_bytes = (total / wanted).max(SMALLEST_CHUNK_BYTES);
        let sets: Vec<CutSet> = sets
            .map(|set| {
                // With many rows a single panel is work enough.
                let panels_per_chunk = if tiling.rows() > STRIP_ROWS {
                    1
                } else {
                    (chunk_bytes / set.bytes).max(1)
                };
                CutSet {
                    panels: set.panels,
                    panels_per_chunk,
                    chunks: set.panels.div_ceil(panels_per_chunk),
                }
            })
            .collect();
        let panel_chunks: usize = sets.iter().map(|set| set.chunks).sum();
        let tiles_per_strip = STRIP_ROWS / tiling.width();
        let strips = tiling.tiles().div_ceil(tiles_per_strip);
        let strips_per_cut = strips.div_ceil(wanted.div_ceil(panel_chunks).min(strips));
        Cuts {
            tiling,
            tiles_per_strip,
            panels_at_once: panels_at_once(tiling.tiles()),
            row_cuts: strips.div_ceil(strips_per_cut),
            strips_per_cut,
            sets,
            threads,
        }
    }

    /// Calls `work` with a set's number, some of its panels and a strip of rows, until every panel of every set has met
    /// every row once.
    pub(super) fn run(&self, compute: &Compute, work: impl Fn(usize, Range<usize>, &Strip) + Sync) {
        let panel_chunks: usize = self.sets.iter().map(|set| set.chunks).sum();
        let chunks = panel_chunks * self.row_cuts;
        let run = |run: Range<usize>| {
            if self.row_cuts == 1 {
                self.pieces(run, 0, &work);
            } else {
                for chunk in run {
                    let panel_chunk = chunk / self.row_cuts;
                    self.pieces(panel_chunk..panel_chunk + 1, chunk % self.row_cuts, &work);
                }
            }
        };
        if self.threads == 1 {
            run(0..chunks);
        } else {
            compute.run_together(chunks, run);
        }
    }

    /// A run of chunks of panels with one cut of the rows.
    fn pieces(
        &self,
        chunks: Range<usize>,
        cut: usize,
        work: &impl Fn(usize, Range<usize>, &Strip),
    ) {
        let mut before = 0;
        for (index, set) in self.sets.iter().enumerate() {
            let first = chunks.start.clamp(before, before + set.chunks) - before;
            let last = chunks.end.clamp(before, before + set.chunks) - before;
            before += set.chunks;
            let panels = first * set.panels_per_chunk..set.panels.min(last * set.panels_per_chunk);
            self.panels(index, panels, cut, work);
        }
    }

    fn panels(
        &self,
        set: usize,
        panels: Range<usize>,
        cut: usize,
        work: &impl Fn(usize, Range<usize>, &Strip),
    ) {
        for first in panels.clone().step_by(self.panels_at_once) {
            let together = first..panels.end.min(first + self.panels_at_once);
            for strip in self.strips(cut) {
                work(set, together.clone(), &strip);
            }
        }
    }

    fn strips(&self, cut: usize) -> impl Iterator<Item = Strip> {
        let tiles = self.tiling.tiles();
        let first = cut * self.strips_per_cut * self.tiles_per_strip;
        let last = tiles.min(first + self.strips_per_cut * self.tiles_per_strip);
        (first..last)
            .step_by(self.tiles_per_strip)
            .map(move |start| Strip {
                tiling: self.tiling,
                tiles: start..last.min(start + self.tiles_per_strip),
            })
    }
}
