//! Panels multiplied with one strip of rows.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::cuts::Strip;
use crate::activations::Activations;
use crate::matrix::Matrix;
use crate::panels::{PANEL_ROWS, PREFETCH_AHEAD, Stretch, Unit, WIDEST_TILE, accumulate};
use crate::tier::Tier;

/// Rows whose sums are held at once: a stretch of weights is used for all of them while it is in the first-level
/// cache, and their sums fit there too.
pub(super) const STRIP_ROWS: usize = 64;
/// Panels whose sums are held at once where there is one tile of rows only. So many that what is written for them leaves the
/// nearer caches before it is written again: writing the same few lines over and over makes the weights, which stream by,
/// wait (four rows took 4 % longer with a quarter of it).
const PANELS_OF_A_TILE: usize = 64;
/// The same where there are several tiles, each of which reads the panels again: few enough to stay in the second-level
/// cache. One by one, what is around them took a tenth of the time for 9 to 64 rows.
const PANELS_OF_A_STRIP: usize = 8;
/// Inputs in a stretch, if there is more than one tile of rows to use it for.
const STRETCH_LEN: usize = 1024;

const ROOM: usize = PANELS_OF_A_TILE * WIDEST_TILE * PANEL_ROWS;
const _: () = assert!(ROOM >= PANELS_OF_A_STRIP * STRIP_ROWS * PANEL_ROWS);

/// Panels that are multiplied in one go with so many tiles of rows.
pub(super) fn panels_at_once(tiles: usize) -> usize {
    if tiles > 1 {
        PANELS_OF_A_STRIP
    } else {
        PANELS_OF_A_TILE
    }
}

/// Room for the sums of some panels and a full strip, or of many panels and one tile. Vectors of them do not cross cache lines.
#[repr(align(64))]
pub(super) struct Sums([MaybeUninit<f32>; ROOM]);

impl Sums {
    #[inline(always)]
    pub(super) fn new() -> Sums {
        Sums([MaybeUninit::uninit(); ROOM])
    }

    /// Multiplies panels with the rows of a strip; gives each row's sums of all panels.
    pub(super) fn multiply(
        &mut self,
        tier: Tier,
        activations: &Activations,
        matrix: &Matrix,
        panels: Range<usize>,
        strip: &Strip,
    ) -> impl Iterator<Item = &mut [f32]> {
        let format = matrix.format();
        let unit = Unit::of(format);
        let units = matrix.panel_bytes() / unit.bytes;
        let units_per_stretch = if strip.len() > 1 {
            (STRETCH_LEN / unit.len).max(1)
        } else {
            units
        };
        let weights = matrix.panels_from(panels.start, panels.len());
        let rows = strip.rows();
        let row_sums = panels.len() * PANEL_ROWS;
        for first in (0..units).step_by(units_per_stretch) {
            for tile in strip.tiles() {
                let start = (tile.first_row - rows.start) * row_sums;
                let stretch = Stretch {
                    weights: weights[first * unit.bytes..].as_ptr(),
                    panels: panels.len(),
                    panel_bytes: matrix.panel_bytes(),
                    units: (units - first).min(units_per_stretch),
                    values: activations.values(format, tile, first * unit.len),
                    factors: activations.factors(format, tile, first * unit.len),
                    block_sums: activations.block_sums(format, tile, first * unit.len),
                    sums: self.0[start..][..tile.width * row_sums].as_mut_ptr().cast(),
                    sums_stride: row_sums,
                    adds: first > 0,
                    ahead: if tile.first_row == 0 {
                        PREFETCH_AHEAD
                    } else {
                        0
                    },
                };
                // SAFETY: tiers in use are those that the machine has. The panels hold `units` units each; the
                // activations were encoded for this tiling and format; there is room for `width` rows of sums.
                unsafe { accumulate(tier, format, tile.width, stretch) };
            }
        }
        let sums = &mut self.0[..rows.len() * row_sums];
        // SAFETY: every tile's first stretch wrote all of its sums.
        sums.chunks_exact_mut(row_sums)
            .map(|sums| unsafe { &mut *(std::ptr::from_mut(sums) as *mut [f32]) })
    }
}
