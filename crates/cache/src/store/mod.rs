//! Where sealed entries lie: in this process, in Redis, or in both.
//!
//! A store never fails a request. Whatever goes wrong in it is counted and counts as a miss.

mod epochs;
mod memory;
pub(crate) mod redis;
mod tiers;

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::fingerprint::Fingerprint;
pub use epochs::Scope;
pub(crate) use epochs::{Epochs, Slots, Stamp, unix_milliseconds};
pub use memory::DEFAULT_MEMORY_BYTES;
pub(crate) use memory::Memory;
pub(crate) use tiers::Tiers;

/// Where sealed entries lie.
pub(crate) trait Store: Send + Sync {
    /// What lies at hand, without waiting.
    fn get_now(&self, _key: &Fingerprint) -> Option<Bytes> {
        None
    }

    /// What lies further off.
    fn get(&self, _key: Fingerprint) -> BoxFuture<'_, Option<Bytes>> {
        Box::pin(std::future::ready(None))
    }

    /// Keeps an entry everywhere.
    fn put(&self, key: Fingerprint, entry: Bytes, ttl: Duration) -> BoxFuture<'_, ()>;

    /// Keeps an entry from further off at hand. It has been checked.
    fn keep_near(&self, _key: Fingerprint, _entry: &Bytes) {}

    /// Takes an entry away that is at hand and no longer good.
    fn forget_near(&self, _key: &Fingerprint) {}

    /// Tells the other gateways what was invalidated. Whether it could.
    fn announce(&self, _slot: u16, _epoch: u64) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(true))
    }

    /// What lies at hand.
    fn held(&self) -> Held {
        Held::default()
    }
}

/// What a store holds in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// Number of entries.
    pub entries: u64,
    /// Their bytes, with what keeping them costs.
    pub bytes: u64,
}
