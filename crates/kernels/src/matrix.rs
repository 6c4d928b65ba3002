//! Weight matrices, packed for the kernels.

use std::sync::{Mutex, PoisonError};

use crate::caches::last_level_bytes;
use crate::compute::Compute;
use crate::error::PackError;
use crate::format::Format;
use crate::memory::Pages;
use crate::panels::{PANEL_ROWS, Unit, pack_row};
use crate::quantize::encode_row;
use crate::shared_out::SharedOut;

/// A weight matrix of `rows` outputs by `cols` inputs. The bytes it was made from are not needed afterwards.
pub struct Matrix {
    format: Format,
    rows: usize,
    cols: usize,
    panel_bytes: usize,
    packed: Pages,
}

impl Matrix {
    /// Packs rows that are already encoded; `row(i)` gives the bytes of output row i, so that callers can permute
    /// rows or concatenate tensors.
    pub fn pack<'a>(
        compute: &Compute,
        format: Format,
        rows: usize,
        cols: usize,
        row: impl Fn(usize) -> &'a [u8] + Sync,
    ) -> Result<Matrix, PackError> {
        let expected = row_bytes(format, cols)?;
        Matrix::build(compute, format, rows, cols, |index, lane, panel| {
            let encoded = row(index);
            if encoded.len() != expected {
                return Err(PackError::RowBytes {
                    row: index,
                    found: encoded.len(),
                    expected,
                });
            }
            pack_row(format, encoded, lane, panel);
            Ok(())
        })
    }

    /// Encodes rows of f32 and packs them; `fill(i, out)` writes row i. Formats with an encoder are the float ones,
    /// Q8_0 and Q4_K.
    pub fn quantize(
        compute: &Compute,
        format: Format,
        rows: usize,
        cols: usize,
        fill: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Result<Matrix, PackError> {
        if matches!(format, Format::Q4_0 | Format::Q6K) {
            return Err(PackError::NoEncoder(format));
        }
        let bytes = row_bytes(format, cols)?;
        Matrix::build(compute, format, rows, cols, |index, lane, panel| {
            let mut values = vec![0.0; cols];
            let mut encoded = vec![0; bytes];
            fill(index, &mut values);
            encode_row(format, &values, &mut encoded);
            pack_row(format, &encoded, lane, panel);
            Ok(())
        })
    }

    fn build(
        compute: &Compute,
        format: Format,
        rows: usize,
        cols: usize,
        place: impl Fn(usize, usize, &mut [u8]) -> Result<(), PackError> + Sync,
    ) -> Result<Matrix, PackError> {
        if rows == 0 || cols == 0 {
            return Err(PackError::Empty { rows, cols });
        }
        let unit = Unit::of(format);
        let panels = rows.div_ceil(PANEL_ROWS);
        let panel_bytes = cols.div_ceil(unit.len).checked_mul(unit.bytes);
        let sizes = panel_bytes.and_then(|bytes| Some((bytes, bytes.checked_mul(panels)?)));
        let (panel_bytes, total) = sizes.ok_or(PackError::OutOfMemory { rows, cols })?;
        let packed = compute.weight_memory().zeroed(total);
        let mut packed = packed.ok_or(PackError::OutOfMemory { rows, cols })?;
        let out = SharedOut::new(&mut packed[..]);
        let failure = Mutex::new(None);
        compute.run(panels, |panel| {
            // SAFETY: panels do not overlap and each is packed by one thread.
            let bytes = unsafe { out.part(panel * panel_bytes, panel_bytes) };
            let first = panel * PANEL_ROWS;
            for row in first..rows.min(first + PANEL_ROWS) {
                if let Err(error) = place(row, row - first, bytes) {
                    failure
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .get_or_insert(error);
                    return;
                }
            }
        });
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(Matrix {
                format,
                rows,
                cols,
                panel_bytes,
                packed,
            }),
        }
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The encoding of its values.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Memory that the packed matrix takes.
    pub fn bytes(&self) -> usize {
        self.packed.len()
    }

    /// Whether it is likely to be in the processor's cache when it is read again: all weights of its model fit there.
    pub(crate) fn stays_in_cache(&self) -> bool {
        self.packed.bytes_together() <= last_level_bytes()
    }

    pub(crate) fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL_ROWS)
    }

    pub(crate) fn panel_bytes(&self) -> usize {
        self.panel_bytes
    }

    /// The bytes of `panels` panels from `first` on.
    pub(crate) fn panels_from(&self, first: usize, panels: usize) -> &[u8] {
        &self.packed[first * self.panel_bytes..][..panels * self.panel_bytes]
    }
}

fn row_bytes(format: Format, cols: usize) -> Result<usize, PackError> {
    format.row_bytes(cols).ok_or(PackError::PartialBlock {
        format,
        block: format.block_len(),
        cols,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::Tier;

    #[test]
    fn shapes_that_files_get_wrong_are_errors() {
        let compute = Compute::new(Tier::Scalar, 2);
        let bytes = [0_u8; 34];
        let pack = |rows, cols| Matrix::pack(&compute, Format::Q8_0, rows, cols, |_| &bytes);
        assert!(matches!(pack(1, 33), Err(PackError::PartialBlock { .. })));
        assert!(matches!(
            pack(40, 64),
            Err(PackError::RowBytes {
                found: 34,
                expected: 68,
                ..
            })
        ));
        assert!(matches!(pack(0, 32), Err(PackError::Empty { .. })));
        assert!(matches!(
            pack(usize::MAX, 32),
            Err(PackError::OutOfMemory { .. })
        ));
        assert!(pack(3, 32).is_ok());
    }

    #[test]
    fn packed_weights_are_hardly_larger_than_the_file() {
        let compute = Compute::new(Tier::Scalar, 1);
        for format in Format::ALL {
            let row = vec![0; format.row_bytes(1024).unwrap()];
            let matrix = Matrix::pack(&compute, format, 256, 1024, |_| &row).unwrap();
            let ratio = matrix.bytes() as f64 / (row.len() * 256) as f64;
            assert!(ratio < 1.03, "{format}: {ratio}");
        }
    }
}
