//! Entries in this process: bounded by their bytes, the least used leave first.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use moka::notification::RemovalCause;

use super::{Held, Store};
use crate::counts::Counts;
use crate::fingerprint::Fingerprint;

/// What the cache takes unless the configuration says otherwise.
pub const DEFAULT_MEMORY_BYTES: u64 = 256 << 20;

/// What keeping an entry costs besides its bytes: moka's nodes and deques, two allocations.
const OVERHEAD_BYTES: u32 = 320;

pub(crate) struct Memory {
    entries: moka::sync::Cache<Fingerprint, Bytes>,
}

impl Memory {
    pub(crate) fn new(max_bytes: u64, counts: Arc<Counts>) -> Self {
        let entries = moka::sync::Cache::builder()
            .max_capacity(max_bytes)
            .weigher(|_, entry: &Bytes| {
                u32::try_from(entry.len())
                    .map_or(u32::MAX, |bytes| bytes.saturating_add(OVERHEAD_BYTES))
            })
            .eviction_listener(move |_, _, cause| {
                if cause == RemovalCause::Size {
                    counts.evicted();
                }
            })
            .build();
        Self { entries }
    }
}

impl Store for Memory {
    fn get_now(&self, key: &Fingerprint) -> Option<Bytes> {
        self.entries.get(key)
    }

    fn put(&self, key: Fingerprint, entry: Bytes, _ttl: Duration) -> BoxFuture<'_, ()> {
        self.keep_near(key, &entry);
        Box::pin(std::future::ready(()))
    }

    fn keep_near(&self, key: Fingerprint, entry: &Bytes) {
        self.entries.insert(key, entry.clone());
    }

    fn forget_near(&self, key: &Fingerprint) {
        self.entries.invalidate(key);
    }

    fn held(&self) -> Held {
        Held {
            entries: self.entries.entry_count(),
            bytes: self.entries.weighted_size(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_of_ten_times_the_size_stays_within_it() {
        let size = 1 << 20;
        let counts = Arc::new(Counts::default());
        let memory = Memory::new(size, Arc::clone(&counts));
        let entry = Bytes::from(vec![7; 1000]);
        for number in 0..(10 * size / 1000) {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_le_bytes());
            memory.keep_near(Fingerprint(key), &entry);
        }
        memory.entries.run_pending_tasks();
        let held = memory.held();
        assert!(held.bytes <= size && held.entries > 0, "{held:?}");
        assert!(counts.read().evictions > 0);
    }
}
