//! Changes of the KV cache: from the engine to the wire.

use std::time::UNIX_EPOCH;

use engine::BlockHash;
use engine::store::Tier;
use protocol::kv_events::{BlockStored, ExtraKey, KvEvent, KvEventBatch, Medium};

pub(crate) fn kv_event_batch(batch: engine::KvEventBatch) -> KvEventBatch {
    KvEventBatch {
        timestamp: batch
            .at
            .duration_since(UNIX_EPOCH)
            .map_or(0.0, |since| since.as_secs_f64()),
        events: batch.events.into_iter().map(kv_event).collect(),
        data_parallel_rank: Some(0),
    }
}

fn kv_event(event: engine::KvEvent) -> KvEvent {
    match event {
        engine::KvEvent::Stored {
            hashes,
            parent,
            tokens,
            block_size,
            cache_salt,
        } => KvEvent::Stored(BlockStored {
            block_hashes: as_integers(&hashes),
            parent_block_hash: parent.map(|hash| hash.as_u64()),
            token_ids: tokens,
            block_size: u32::try_from(block_size).unwrap_or(u32::MAX),
            extra_keys: cache_salt
                .map(|salt| vec![ExtraKey::Text(salt.to_string())])
                .into_iter()
                .collect(),
            medium: Medium::Resident,
            ..BlockStored::default()
        }),
        engine::KvEvent::Removed { hashes } => KvEvent::Removed {
            block_hashes: as_integers(&hashes),
            medium: Medium::Resident,
        },
        engine::KvEvent::Kept { hashes, tier } => KvEvent::Stored(BlockStored {
            block_hashes: as_integers(&hashes),
            medium: medium(tier),
            ..BlockStored::default()
        }),
        engine::KvEvent::Lost { hashes, tier } => KvEvent::Removed {
            block_hashes: as_integers(&hashes),
            medium: medium(tier),
        },
        engine::KvEvent::Cleared => KvEvent::Cleared,
    }
}

fn medium(tier: Tier) -> Medium {
    match tier {
        Tier::Memory => Medium::Host,
        Tier::Disk => Medium::Storage,
        Tier::Shared => Medium::Shared,
    }
}

fn as_integers(hashes: &[BlockHash]) -> Vec<u64> {
    hashes.iter().map(|hash| hash.as_u64()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_elsewhere_are_told_by_name_and_medium() {
        for (tier, medium) in [
            (Tier::Memory, Medium::Host),
            (Tier::Disk, Medium::Storage),
            (Tier::Shared, Medium::Shared),
        ] {
            let hashes = Vec::new();
            let kept = kv_event(engine::KvEvent::Kept { hashes, tier });
            let told = BlockStored {
                medium,
                ..BlockStored::default()
            };
            assert_eq!(kept, KvEvent::Stored(told));
            let hashes = Vec::new();
            let lost = kv_event(engine::KvEvent::Lost { hashes, tier });
            let block_hashes = Vec::new();
            assert_eq!(
                lost,
                KvEvent::Removed {
                    block_hashes,
                    medium
                }
            );
        }
    }
}
