//! The arithmetic of the engine: SIMD matrix products, attention and norms, run-time dispatch, the thread pool.
//!
//! One promise shapes everything here: **batch invariance**. Each output element is accumulated in one order that
//! depends on its own inputs only, never on the batch around it, the number of threads or the way work was handed
//! out. A row computed among 64 others is bit-identical to the row computed alone.
//!
//! Kernels are written once over sixteen lanes and compiled for every [`Tier`]; the scalar tier is the oracle the
//! others are tested against. This is the only crate of the workspace that may use `unsafe`.
//!
//! ```
//! use forespeak_kernels::{Compute, Format, Input, Matrix, Product, Scratch, Tier, matmul};
//!
//! let compute = Compute::new(Tier::detect(), 1);
//! let weights = Matrix::quantize(&compute, Format::F32, 2, 3, |row, out| out.fill(row as f32 + 1.0))?;
//! let mut out = [0.0; 2];
//! let products = &mut [Product::new(&weights, &mut out)];
//! matmul(&compute, &mut Scratch::default(), Input::Rows(&[1.0, 2.0, 3.0]), 1, products);
//! assert_eq!(out, [6.0, 12.0]);
//! # Ok::<(), forespeak_kernels::PackError>(())
//! ```

mod activations;
mod attention;
mod blocks;
mod caches;
mod compute;
mod dequantize;
mod error;
mod format;
mod kv_cache;
mod kv_store;
mod lanes;
mod line_vec;
mod mapped_file;
mod matmul;
mod matrix;
mod memory;
mod norm;
mod panels;
mod pool;
mod prefetch;
mod quantize;
mod rope;
mod shared_out;
mod silu;
mod sync;
mod tier;
mod widest;

pub use activations::Activations;
pub use attention::{Attention, AttentionRow, attend};
pub use compute::Compute;
pub use dequantize::dequantize;
pub use error::{KvError, PackError};
pub use format::Format;
pub use kv_cache::{BLOCK_TOKENS, KvCache, KvShape, KvType};
pub use kv_store::store_kv;
pub use mapped_file::MappedFile;
pub use matmul::{Input, Product, Scratch, gated, matmul};
pub use matrix::Matrix;
pub use memory::trim_heap;
pub use norm::Norm;
pub use prefetch::prefetch;
pub use rope::{RopeTable, Turn};
pub use tier::{ParseTierError, Tier};
pub use widest::{Pass, widest};
