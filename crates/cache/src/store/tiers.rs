//! Memory in front of something further off.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::{Held, Memory, Store};
use crate::fingerprint::Fingerprint;

pub(crate) struct Tiers<F> {
    near: Memory,
    far: F,
}

impl<F: Store> Tiers<F> {
    pub(crate) fn new(near: Memory, far: F) -> Self {
        Self { near, far }
    }
}

impl<F: Store> Store for Tiers<F> {
    fn get_now(&self, key: &Fingerprint) -> Option<Bytes> {
        self.near.get_now(key)
    }

    fn get(&self, key: Fingerprint) -> BoxFuture<'_, Option<Bytes>> {
        self.far.get(key)
    }

    fn put(&self, key: Fingerprint, entry: Bytes, ttl: Duration) -> BoxFuture<'_, ()> {
        self.near.keep_near(key, &entry);
        self.far.put(key, entry, ttl)
    }

    fn keep_near(&self, key: Fingerprint, entry: &Bytes) {
        self.near.keep_near(key, entry);
    }

    fn forget_near(&self, key: &Fingerprint) {
        self.near.forget_near(key);
    }

    fn announce(&self, slot: u16, epoch: u64) -> BoxFuture<'_, bool> {
        self.far.announce(slot, epoch)
    }

    fn held(&self) -> Held {
        self.near.held()
    }
}
