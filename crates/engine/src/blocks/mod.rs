//! Paged memory for keys and values: who holds which block, and which old blocks can be reused.
//!
//! Pure bookkeeping; the keys and values themselves are the executor's.

mod chain;
mod event;
mod hash;
mod lru;
mod pool;
mod table;

pub(crate) use chain::Chain;
pub use event::{KvEvent, KvEventBatch};
pub use hash::BlockHash;
pub(crate) use pool::BlockPool;
pub(crate) use table::BlockTable;
