//! Panels multiplied with one strip of rows.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::cuts::Strip;
use crate::activations::Activations;
use crate::matrix::Matrix;
use crate::panels::{Ask, PANEL_ROWS, Stretch, Unit, WIDEST_TILE, accumulate};
use crate::tier::Tier;

/// Rows whose sums are held at once: a stretch of weights is used for all of them while it is in the first-level
/// cache, and their sums fit there too.
pub(super) const STRIP_ROWS: usize = 64;
/// Panels whose sums are held at once where there is one tile of rows only. So many that what is written for them leaves the
/// nearer caches before it is written again: writing the same few lines over and over makes the weights, which stream by,
/// wait (four rows took 4 % longer with a quarter of it).
const PANELS_OF_A_TILE: usize = 64;
/// The same where there are several tiles, each of which reads the panels again: few enough to stay in the second-level
/// cache. Handed out one by one, what is around them took a tenth of the time for 9 to 64 rows.
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

    /// Multiplies a piece; gives each row's sums of all its panels.
    pub(super) fn multiply(&mut self, piece: &Piece<'_>) -> impl Iterator<Item = &mut [f32]> {
        let stride = piece.panels.len() * PANEL_ROWS;
        let sums = &mut self.0[..piece.padded_rows() * stride];
        let first = sums.as_mut_ptr().cast();
        // SAFETY: there is room for all rows, padding included.
        unsafe { piece.multiply_to(SumsPlace { first, stride }) };
        // SAFETY: that wrote all of them.
        sums.chunks_exact_mut(stride)
            .map(|sums| unsafe { &mut *(std::ptr::from_mut(sums) as *mut [f32]) })
            .take(piece.strip.rows().len())
    }
}

/// Where sums go: those of one row side by side, the next row's `stride` values further.
#[derive(Clone, Copy)]
pub(super) struct SumsPlace {
    pub(super) first: *mut f32,
    pub(super) stride: usize,
}

/// What is multiplied in one go: neighbouring panels of a matrix with the rows of a strip.
pub(super) struct Piece<'a> {
    pub(super) tier: Tier,
    pub(super) activations: &'a Activations,
    pub(super) matrix: &'a Matrix,
    pub(super) panels: Range<usize>,
    pub(super) strip: &'a Strip,
}

impl Piece<'_> {
    /// The first of its outputs.
    pub(super) fn first_output(&self) -> usize {
        self.panels.start * PANEL_ROWS
    }

    /// Whether none of its outputs and rows is padding.
    pub(super) fn is_full(&self) -> bool {
        self.panels.end * PANEL_ROWS <= self.matrix.rows()
            && self.padded_rows() == self.strip.rows().len()
    }

    fn padded_rows(&self) -> usize {
        self.strip.tiles().map(|tile| tile.width).sum()
    }

    /// Writes all sums, those of padding too.
    ///
    /// # Safety
    /// They must have room in their place, and nobody else may use it meanwhile.
    pub(super) unsafe fn multiply_to(&self, place: SumsPlace) {
        let Piece {
            activations,
            matrix,
            strip,
            ..
        } = *self;
        let format = matrix.format();
        let unit = Unit::of(format);
        let units = matrix.panel_bytes() / unit.bytes;
        let units_per_stretch = if strip.len() > 1 {
            (STRETCH_LEN / unit.len).max(1)
        } else {
            units
        };
        let panels = self.panels.len();
        let weights = matrix.panels_from(self.panels.start, panels);
        let first_row = strip.rows().start;
        let from_cache = matrix.stays_in_cache();
        let together = self.panels_in_a_turn();
        for panel in (0..panels).step_by(together) {
            let weights = &weights[panel * matrix.panel_bytes()..];
            let sums = place.first.add(panel * PANEL_ROWS);
            for first in (0..units).step_by(units_per_stretch) {
                for tile in strip.tiles() {
                    let stretch = Stretch {
                        weights: weights[first * unit.bytes..].as_ptr(),
                        panels: together,
                        panel_bytes: matrix.panel_bytes(),
                        units: (units - first).min(units_per_stretch),
                        values: activations.values(format, tile, first * unit.len),
                        factors: activations.factors(format, tile, first * unit.len),
                        block_sums: activations.block_sums(format, tile, first * unit.len),
                        sums: sums.add((tile.first_row - first_row) * place.stride),
                        sums_stride: place.stride,
                        adds: first > 0,
                        ask: if tile.first_row == 0 {
                            Ask::for_rows(tile.width, from_cache)
                        } else {
                            Ask::Not
                        },
                    };
                    // SAFETY: tiers in use are those that the machine has. The panels hold `units` units each; the
                    // activations were encoded for this tiling and format; there is room for the sums.
                    unsafe { accumulate(self.tier, format, tile.width, stretch) };
                }
            }
        }
    }

    /// Panels that one tile goes through before the next one has its turn. Only the first tile asks for what comes next, so
    /// memory rests while the others are at work: with weights from there, a stretch of a single panel at a time keeps the
    /// rests short (9 to 16 rows took a tenth longer with eight).
    fn panels_in_a_turn(&self) -> usize {
        if self.strip.len() > 1 && !self.matrix.stays_in_cache() {
            1
        } else {
            self.panels.len()
        }
    }
}
