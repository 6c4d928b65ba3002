//! Paged memory for keys and values: who holds which block, and which old blocks can be reused.

mod event;
mod hash;

pub use event::{KvEvent, KvEventBatch};
pub use hash::BlockHash;
