//! Where KV blocks lie beyond the memory that the engine computes from: one module for each tier.
//!
//! ```text
//! Memory    this process         bounded by its bytes, longest unused first
//! Folder    a disk, or a share   bounded by the bytes of all files in it, whoever wrote them
//! Redis     a server, a cluster  bounded by the bytes this instance wrote there
//! ```
//! None of them can fail a request: see [`engine::store::BlockStore`].
//!
//! ```
//! use std::time::{Duration, Instant};
//! use bytes::Bytes;
//! use engine::store::{BlockStore, StoreKey};
//! use forespeak_blockstore::Memory;
//!
//! let memory = Memory::new(1 << 20);
//! let key = StoreKey::from_bytes([7; StoreKey::BYTES]);
//! memory.write(vec![(key, Bytes::from_static(b"sealed"))]);
//! let soon = Instant::now() + Duration::from_secs(1);
//! assert_eq!(memory.read(&[key], soon), [Bytes::from_static(b"sealed")]);
//! ```

mod folder;
mod memory;
mod redis;

pub use cache::AddressError;
pub use folder::Folder;
pub use memory::Memory;
pub use redis::Redis;
