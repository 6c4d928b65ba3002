//! Packs one tensor after another and tells how far it has come.

use std::cell::Cell;

use kernels::{Compute, Format, Matrix, dequantize};

use crate::ModelError;
use crate::config::ModelConfig;

use super::checkpoint::{Checkpoint, Stored};
use super::names::Name;
use super::{Progress, Quantize};

/// Packed weights are larger than in their file by at most one part in so many.
const PACKED_MORE: usize = 16;

pub(super) struct Packer<'a> {
    checkpoint: &'a Checkpoint,
    config: &'a ModelConfig,
    compute: &'a Compute,
    quantize: Option<Quantize>,
    progress: &'a dyn Fn(Progress<'_>),
    done: Cell<usize>,
    total: usize,
}

impl<'a> Packer<'a> {
    pub(super) fn new(
        checkpoint: &'a Checkpoint,
        config: &'a ModelConfig,
        compute: &'a Compute,
        quantize: Option<Quantize>,
        progress: &'a dyn Fn(Progress<'_>),
    ) -> Result<Self, ModelError> {
        let total = checkpoint.checked_bytes(config)?;
        compute.expect_weights(total + total / PACKED_MORE);
        Ok(Self {
            checkpoint,
            config,
            compute,
            quantize,
            progress,
            done: Cell::new(0),
            total,
        })
    }

    pub(super) fn matrix(&self, name: Name) -> Result<Matrix, ModelError> {
        let tensor = self.checkpoint.require(name)?;
        let order = self.row_order(name);
        let shape = name.shape(self.config);
        let (rows, columns) = (shape.first().copied().unwrap_or_default(), tensor.columns());
        let row = |output: usize| tensor.row(order.stored_row(output));
        let packed = match self.smaller_format(name, tensor, columns) {
            Some(format) => Matrix::quantize(self.compute, format, rows, columns, |output, out| {
                dequantize(tensor.format(), row(output), out);
            }),
            None => Matrix::pack(self.compute, tensor.format(), rows, columns, row),
        };
        let matrix = packed.map_err(|source| ModelError::Memory {
            what: format!("{}: packing tensor `{}`", tensor.file.name, tensor.name),
            source: source.into(),
        })?;
        self.finished(tensor);
        Ok(matrix)
    }

    pub(super) fn vector(&self, name: Name) -> Result<Vec<f32>, ModelError> {
        let tensor = self.checkpoint.require(name)?;
        let len = tensor.columns();
        if !matches!(tensor.format(), Format::F32 | Format::F16 | Format::Bf16) {
            return Err(tensor.error("is quantized; norms and biases must be floats"));
        }
        let mut stored = vec![0.0; len];
        dequantize(tensor.format(), tensor.bytes(), &mut stored);
        let order = self.row_order(name);
        let values = (0..len)
            .filter_map(|output| stored.get(order.stored_row(output)).copied())
            .collect();
        self.finished(tensor);
        Ok(values)
    }

    pub(super) fn optional_vector(&self, name: Name) -> Result<Option<Vec<f32>>, ModelError> {
        match self.checkpoint.find(name) {
            Some(_) => self.vector(name).map(Some),
            None => Ok(None),
        }
    }

    fn row_order(&self, name: Name) -> RowOrder {
        if self.checkpoint.interleaved && name.is_rotated() {
            RowOrder::Interleaved {
                head_dim: self.config.head_dim,
            }
        } else {
            RowOrder::AsStored
        }
    }

    /// The format that `--quantize` asks for, where the tensor is a float one and its rows are whole
    /// blocks; rows that are not fall back to smaller blocks, then to what the file has.
    fn smaller_format(&self, name: Name, tensor: &Stored, columns: usize) -> Option<Format> {
        if !matches!(tensor.format(), Format::F32 | Format::F16 | Format::Bf16) {
            return None;
        }
        let is_output = matches!(name, Name::Output | Name::Embedding);
        let wanted: &[Format] = match self.quantize? {
            Quantize::Q4K if !is_output => &[Format::Q4K, Format::Q8_0],
            Quantize::Q4K | Quantize::Q8_0 => &[Format::Q8_0],
        };
        wanted
            .iter()
            .copied()
            .find(|format| format.row_bytes(columns).is_some())
    }

    fn finished(&self, tensor: &Stored) {
        tensor.forget();
        self.done.set(self.done.get() + tensor.bytes().len());
        (self.progress)(Progress {
            done: self.done.get().min(self.total),
            total: self.total,
            tensor: &tensor.name,
        });
    }
}

/// Which stored row is output row `i`. At run time every head is rotated in halves (value `i` with
/// value `i + head_dim / 2`); Llama's GGUF files are written for rotating neighbours.
#[derive(Debug, Clone, Copy)]
enum RowOrder {
    AsStored,
    Interleaved { head_dim: usize },
}

impl RowOrder {
    fn stored_row(self, output: usize) -> usize {
        match self {
            Self::AsStored => output,
            Self::Interleaved { head_dim } => {
                let (head, within) = (output / head_dim, output % head_dim);
                let half = head_dim / 2;
                head * head_dim + 2 * (within % half) + within / half
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RowOrder;

    #[test]
    fn interleaved_rows_come_back_in_halves() {
        let order = RowOrder::Interleaved { head_dim: 4 };
        let rows: Vec<usize> = (0..8).map(|row| order.stored_row(row)).collect();
        assert_eq!(rows, [0, 2, 1, 3, 4, 6, 5, 7]);
    }
}
