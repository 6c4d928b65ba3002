//! The prefix index hears what workers say about their caches.

use std::sync::Arc;

use fleet::{KvChange, KvUpdate, WorkerId};
use protocol::kv_events::{BlockStored, ExtraKey, KvEvent};
use routing::index::Stored;
use routing::keys::{KeySeed, Root};
use tokio::sync::mpsc;

use super::shared::Shared;

/// Takes in what workers say, for as long as anybody speaks.
pub(super) async fn follow(
    shared: Arc<Shared>,
    seed: KeySeed,
    mut updates: mpsc::Receiver<KvUpdate>,
) {
    while let Some(update) = updates.recv().await {
        let worker = update.worker;
        match update.change {
            // One event at a time: between two of them requests are placed.
            KvChange::Batch(batch) => {
                for event in &batch.events {
                    take_in(&shared, seed, worker, event);
                }
            }
            KvChange::Forget(_) => {
                let now = shared.now().since_start;
                shared.desk().books.index.cleared(worker, now);
            }
            KvChange::Gone => shared.desk().gone(worker),
        }
    }
}

fn take_in(shared: &Shared, seed: KeySeed, worker: WorkerId, event: &KvEvent) {
    let now = shared.now().since_start;
    let mut desk = shared.desk();
    if let Some(account) = desk.books.account_mut(worker) {
        account.unannounced = 0;
    }
    let index = &mut desk.books.index;
    match event {
        KvEvent::Stored(stored) => {
            let event = Stored {
                parent: stored.parent_block_hash,
                root: root(seed, stored),
                hashes: &stored.block_hashes,
                tokens: &stored.token_ids,
                block_tokens: stored.block_size as usize,
            };
            // What cannot be placed is counted by the index, and shown by the metrics.
            let _counted = index.stored(worker, event, now);
        }
        KvEvent::Removed { block_hashes } => index.removed(worker, block_hashes, now),
        KvEvent::Cleared => index.cleared(worker, now),
    }
}

/// Salt and adapter of a prompt's first block. vLLM names both without saying which is which, the
/// adapter first; as we send a salt with everything, a single name is the salt.
fn root(seed: KeySeed, stored: &BlockStored) -> Root {
    let mut names = stored
        .extra_keys
        .first()
        .into_iter()
        .flatten()
        .filter_map(|key| match key {
            ExtraKey::Text(name) => Some(name.as_str()),
            ExtraKey::Placed(..) | ExtraKey::Unknown => None,
        });
    let (first, last) = (names.next(), names.next_back());
    match (first, last) {
        (Some(adapter), Some(salt)) => Root::new(seed, salt, Some(adapter)),
        (salt, _) => Root::new(seed, salt.unwrap_or_default(), None),
    }
}
