//! What can go wrong with shapes and memory that come from files and settings. A wrong shape between the caller's
//! own buffers is a programming error and asserted instead.

use crate::format::Format;

/// Why a weight matrix could not be packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The row length does not fit the format's blocks.
    #[error(
        "{format} stores whole blocks of {block} values, but a row has {cols}: use a float format for this tensor"
    )]
    PartialBlock {
        /// The weights' encoding.
        format: Format,
        /// Values in a block.
        block: usize,
        /// Values in a row.
        cols: usize,
    },
    /// A row is shorter or longer than its shape says.
    #[error(
        "row {row} has {found} bytes where {expected} are needed: the tensor's shape and its data disagree"
    )]
    RowBytes {
        /// The row's index.
        row: usize,
        /// Bytes that were given.
        found: usize,
        /// Bytes that the format needs.
        expected: usize,
    },
    /// A matrix without rows or columns.
    #[error("a weight matrix of {rows} rows and {cols} columns is empty")]
    Empty {
        /// Output rows.
        rows: usize,
        /// Input columns.
        cols: usize,
    },
    /// There is no encoder for this format.
    #[error(
        "weights cannot be quantised to {0}: choose q8_0 or q4_k, or keep them as f32, f16 or bf16"
    )]
    NoEncoder(Format),
    /// The packed matrix does not fit into memory.
    #[error(
        "no memory for a matrix of {rows} x {cols} values: use a smaller model or a smaller format"
    )]
    OutOfMemory {
        /// Output rows.
        rows: usize,
        /// Input columns.
        cols: usize,
    },
}

/// Why a KV cache could not be made or filled.
#[derive(Debug, thiserror::Error)]
pub enum KvError {
    /// A dimension of the shape is zero or the whole does not fit into an address space.
    #[error(
        "a kv cache of {blocks} blocks of {shape} cannot be built: every size must be positive and the whole fit into memory"
    )]
    Shape {
        /// The shape in words.
        shape: String,
        /// Blocks asked for.
        blocks: usize,
    },
    /// The operating system refused the memory.
    #[error("no memory for a kv cache of {bytes} bytes: give it fewer blocks")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// A block number outside the cache.
    #[error("block {block} is not among the {blocks} blocks of this cache")]
    NoSuchBlock {
        /// The block's number.
        block: u32,
        /// Blocks in the cache.
        blocks: usize,
    },
    /// Imported bytes of another cache's shape.
    #[error(
        "a block of this cache has {expected} bytes, not {found}: both caches need the same shape"
    )]
    BlockBytes {
        /// Bytes that were given.
        found: usize,
        /// Bytes of a block.
        expected: usize,
    },
}
