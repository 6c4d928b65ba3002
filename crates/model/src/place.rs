//! Where a tensor lies.

use std::ops::Range;

use kernels::Format;

/// Where a tensor lies in its file and what its bytes mean. Readers make these only for ranges inside
/// the file that hold exactly what shape and format need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Outputs first, as PyTorch prints it (GGUF stores it the other way round).
    pub shape: Vec<usize>,
    /// Encoding of its values.
    pub format: Format,
    /// Its bytes, counted from the start of the file.
    pub range: Range<usize>,
}
