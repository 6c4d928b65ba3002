//! Values to msgpack, as maps with the fields in vLLM's order.

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::{BlockStored, ExtraKey, KvEvent, KvEventBatch};

/// The only kind of attention whose blocks we announce.
const SPEC_KIND: &str = "full_attention";

/// The payload frame of a batch.
pub fn encode_batch(batch: &KvEventBatch) -> Vec<u8> {
    let mut payload = Vec::with_capacity(64 + 5 * token_count(batch));
    let mut serializer = rmp_serde::Serializer::new(&mut payload).with_struct_map();
    let value = (batch.timestamp, &batch.events, batch.data_parallel_rank);
    // Writing plain values into memory has no way to fail.
    let written = value.serialize(&mut serializer);
    debug_assert!(written.is_ok());
    payload
}

fn token_count(batch: &KvEventBatch) -> usize {
    batch.events.iter().fold(0, |sum, event| match event {
        KvEvent::Stored(stored) => sum + stored.token_ids.len(),
        KvEvent::Removed { .. } | KvEvent::Cleared => sum,
    })
}

impl Serialize for KvEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            KvEvent::Stored(stored) => stored.serialize(serializer),
            KvEvent::Removed {
                block_hashes,
                medium,
            } => {
                let (medium, locality) = medium.words();
                let fields = 4 + usize::from(locality.is_some());
                let mut map = serializer.serialize_struct("BlockRemoved", fields)?;
                map.serialize_field("type", "BlockRemoved")?;
                map.serialize_field("block_hashes", block_hashes)?;
                map.serialize_field("medium", medium)?;
                map.serialize_field("group_idx", &0_u8)?;
                if let Some(locality) = locality {
                    map.serialize_field("locality", locality)?;
                }
                map.end()
            }
            KvEvent::Cleared => {
                let mut map = serializer.serialize_struct("AllBlocksCleared", 1)?;
                map.serialize_field("type", "AllBlocksCleared")?;
                map.end()
            }
        }
    }
}

impl Serialize for BlockStored {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let extra_keys: Vec<Option<&[ExtraKey]>> = (0..self.block_hashes.len())
            .map(|block| {
                self.extra_keys
                    .get(block)
                    .map(Vec::as_slice)
                    .filter(|keys| !keys.is_empty())
            })
            .collect();
        let (medium, locality) = self.medium.words();
        let fields = 11 + usize::from(locality.is_some());
        let mut map = serializer.serialize_struct("BlockStored", fields)?;
        map.serialize_field("type", "BlockStored")?;
        map.serialize_field("block_hashes", &self.block_hashes)?;
        map.serialize_field("parent_block_hash", &self.parent_block_hash)?;
        map.serialize_field("token_ids", &self.token_ids)?;
        map.serialize_field("block_size", &self.block_size)?;
        map.serialize_field("lora_id", &self.adapter.number())?;
        map.serialize_field("medium", medium)?;
        map.serialize_field("lora_name", &self.adapter.name())?;
        map.serialize_field("extra_keys", &extra_keys)?;
        map.serialize_field("group_idx", &0_u8)?;
        map.serialize_field("kv_cache_spec_kind", SPEC_KIND)?;
        if let Some(locality) = locality {
            map.serialize_field("locality", locality)?;
        }
        map.end()
    }
}

impl Serialize for ExtraKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            ExtraKey::Text(text) => serializer.serialize_str(text),
            ExtraKey::Placed(identifier, offset) => (identifier, offset).serialize(serializer),
            ExtraKey::Unknown => serializer.serialize_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv_events::{Adapter, Medium};

    #[test]
    fn the_bytes_are_those_of_vllm_map_encoding() {
        let batch = KvEventBatch {
            timestamp: 1.5,
            events: vec![
                KvEvent::Stored(BlockStored {
                    block_hashes: vec![0xdead_beef_0000_0001, 2],
                    parent_block_hash: None,
                    token_ids: vec![1, 2, 300, 70_000],
                    block_size: 2,
                    extra_keys: vec![vec![ExtraKey::Text("tenant".into())]],
                    adapter: Adapter::None,
                    medium: Medium::Resident,
                }),
                KvEvent::Removed {
                    block_hashes: vec![7],
                    medium: Medium::Resident,
                },
                KvEvent::Cleared,
            ],
            data_parallel_rank: Some(0),
        };
        let mut golden: Vec<u8> = vec![0x93, 0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0, 0x93];
        let text = |golden: &mut Vec<u8>, text: &str| {
            golden.push(0xa0 | text.len() as u8);
            golden.extend_from_slice(text.as_bytes());
        };
        golden.push(0x8b);
        text(&mut golden, "type");
        text(&mut golden, "BlockStored");
        text(&mut golden, "block_hashes");
        golden.extend([0x92, 0xcf, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 1, 2]);
        text(&mut golden, "parent_block_hash");
        golden.push(0xc0);
        text(&mut golden, "token_ids");
        golden.extend([0x94, 1, 2, 0xcd, 0x01, 0x2c, 0xce, 0, 1, 0x11, 0x70]);
        text(&mut golden, "block_size");
        golden.push(2);
        text(&mut golden, "lora_id");
        golden.push(0xc0);
        text(&mut golden, "medium");
        text(&mut golden, "GPU");
        text(&mut golden, "lora_name");
        golden.push(0xc0);
        text(&mut golden, "extra_keys");
        golden.extend([0x92, 0x91]);
        text(&mut golden, "tenant");
        golden.push(0xc0);
        text(&mut golden, "group_idx");
        golden.push(0);
        text(&mut golden, "kv_cache_spec_kind");
        text(&mut golden, "full_attention");
        golden.push(0x84);
        text(&mut golden, "type");
        text(&mut golden, "BlockRemoved");
        text(&mut golden, "block_hashes");
        golden.extend([0x91, 7]);
        text(&mut golden, "medium");
        text(&mut golden, "GPU");
        text(&mut golden, "group_idx");
        golden.push(0);
        golden.push(0x81);
        text(&mut golden, "type");
        text(&mut golden, "AllBlocksCleared");
        golden.push(0);
        assert_eq!(encode_batch(&batch), golden);
    }
}
