//! Encodings of weights as they stand in files.

use std::fmt;

/// How a file encodes weights: GGUF's byte layouts, floats in little endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of a single.
    Bf16,
    /// Blocks of 32: an f16 scale and 32 signed bytes.
    Q8_0,
    /// Blocks of 32: an f16 scale and 32 nibbles with an offset of 8.
    Q4_0,
    /// Blocks of 256: f16 scale and minimum, eight 6-bit scales and minima, 256 nibbles.
    Q4K,
    /// Blocks of 256: sixteen signed byte scales, 256 6-bit values with an offset of 32, an f16 scale.
    Q6K,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 7] = [
        Format::F32,
        Format::F16,
        Format::Bf16,
        Format::Q8_0,
        Format::Q4_0,
        Format::Q4K,
        Format::Q6K,
    ];

    /// Values in one block.
    pub fn block_len(self) -> usize {
        match self {
            Format::F32 | Format::F16 | Format::Bf16 => 1,
            Format::Q8_0 | Format::Q4_0 => 32,
            Format::Q4K | Format::Q6K => 256,
        }
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        match self {
            Format::F32 => 4,
            Format::F16 | Format::Bf16 => 2,
            Format::Q8_0 => 2 + 32,
            Format::Q4_0 => 2 + 16,
            Format::Q4K => 2 + 2 + 12 + 128,
            Format::Q6K => 128 + 64 + 16 + 2,
        }
    }

    /// Bytes of a row of `cols` values; `None` if that is not a whole number of blocks.
    pub fn row_bytes(self, cols: usize) -> Option<usize> {
        let whole = cols.is_multiple_of(self.block_len());
        whole
            .then(|| (cols / self.block_len()).checked_mul(self.block_bytes()))
            .flatten()
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::F32 => "f32",
            Format::F16 => "f16",
            Format::Bf16 => "bf16",
            Format::Q8_0 => "q8_0",
            Format::Q4_0 => "q4_0",
            Format::Q4K => "q4_k",
            Format::Q6K => "q6_k",
        })
    }
}
