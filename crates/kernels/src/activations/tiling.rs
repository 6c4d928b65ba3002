//! Which rows are multiplied together.

use crate::panels::TILE_WIDTHS;
use crate::tier::Tier;

/// Rows that a kernel multiplies together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowTile {
    pub(crate) first_row: usize,
    /// Rows with padding: one of [`TILE_WIDTHS`].
    pub(crate) width: usize,
}

/// How rows are grouped into tiles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tiling {
    rows: usize,
    width: usize,
}

impl Tiling {
    pub(crate) fn new(tier: Tier, rows: usize) -> Tiling {
        // As many rows as the tier has registers to hold sums for.
        let width = match tier {
            Tier::Avx512 => 8,
            Tier::Avx2 => 2,
            Tier::Scalar => 4,
        };
        Tiling { rows, width }
    }

    pub(crate) fn rows(self) -> usize {
        self.rows
    }

    /// Rows of a full tile.
    pub(crate) fn width(self) -> usize {
        self.width
    }

    pub(crate) fn tiles(self) -> usize {
        self.rows.div_ceil(self.width)
    }

    pub(crate) fn tile(self, index: usize) -> RowTile {
        let first_row = index * self.width;
        let rows = (self.rows - first_row).min(self.width);
        let width = TILE_WIDTHS
            .into_iter()
            .find(|width| *width >= rows)
            .unwrap_or(self.width);
        RowTile { first_row, width }
    }

    /// The tile of a row; padding belongs to the last one.
    pub(super) fn tile_of(self, row: usize) -> RowTile {
        self.tile((row / self.width).min(self.tiles() - 1))
    }

    pub(super) fn padded_rows(self) -> usize {
        match self.tiles() {
            0 => 0,
            tiles => (tiles - 1) * self.width + self.tile(tiles - 1).width,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_tile_is_padded_to_a_width_that_kernels_exist_for() {
        for tier in Tier::ALL {
            for rows in 1..40 {
                let tiling = Tiling::new(tier, rows);
                let tiles: Vec<RowTile> = (0..tiling.tiles()).map(|i| tiling.tile(i)).collect();
                let padded = tiles.iter().map(|tile| tile.width).sum::<usize>();
                assert!(rows <= padded && padded == tiling.padded_rows());
                assert!(tiles.iter().all(|tile| TILE_WIDTHS.contains(&tile.width)));
            }
        }
    }
}
