//! Msgpack to values, from maps and from arrays, whatever the sender.
//!
//! The sender is foreign: a payload is capped in size before it is read, collections grow only as
//! their elements really arrive, and events of an unknown kind are left out rather than refused, so
//! that a newer vLLM does not silence its older events.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Adapter, BlockStored, ExtraKey, KvEvent, KvEventBatch, Medium};

/// The largest payload that is read: a step of 64 Ki tokens with five bytes each, eight times over.
pub const MAX_PAYLOAD_BYTES: usize = 4 << 20;

/// Why a payload could not be read.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Larger than [`MAX_PAYLOAD_BYTES`].
    #[error("a kv event payload of {0} bytes is over the limit of {MAX_PAYLOAD_BYTES} bytes")]
    TooLarge(usize),
    /// Not msgpack, or not the shape of a batch.
    #[error("a kv event payload is malformed: {0}")]
    Malformed(#[from] rmp_serde::decode::Error),
}

/// Reads a payload frame.
pub fn decode_batch(payload: &[u8]) -> Result<KvEventBatch, DecodeError> {
    if payload.len() > MAX_PAYLOAD_BYTES {
        return Err(DecodeError::TooLarge(payload.len()));
    }
    let WireBatch(batch) = rmp_serde::from_slice(payload)?;
    Ok(batch)
}

struct WireBatch(KvEventBatch);

impl<'de> Deserialize<'de> for WireBatch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts;
        impl<'de> Visitor<'de> for Parts {
            type Value = WireBatch;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("[timestamp, events, data_parallel_rank]")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<WireBatch, A::Error> {
                let timestamp = parts
                    .next_element()?
                    .ok_or_else(|| de::Error::custom("the timestamp is missing"))?;
                let events: Vec<WireEvent> = parts
                    .next_element()?
                    .ok_or_else(|| de::Error::custom("the events are missing"))?;
                let data_parallel_rank = parts.next_element::<Option<u32>>()?.flatten();
                while parts.next_element::<IgnoredAny>()?.is_some() {}
                Ok(WireBatch(KvEventBatch {
                    timestamp,
                    events: events.into_iter().filter_map(|event| event.0).collect(),
                    data_parallel_rank,
                }))
            }
        }
        deserializer.deserialize_seq(Parts)
    }
}

/// An event, or nothing when its kind is unknown.
struct WireEvent(Option<KvEvent>);

/// The fields of any event, before it is known which event it is: in a map `type` need not come first.
#[derive(Default)]
struct Fields {
    kind: String,
    block_hashes: Vec<WireHash>,
    parent_block_hash: Option<WireHash>,
    token_ids: Vec<u32>,
    block_size: u32,
    extra_keys: Vec<Vec<ExtraKey>>,
    lora_id: Option<i64>,
    lora_name: Option<String>,
    medium: Option<String>,
    locality: Option<String>,
}

impl Fields {
    fn into_event(self) -> Option<KvEvent> {
        let block_hashes = self.block_hashes.into_iter().map(|hash| hash.0).collect();
        let medium = Medium::of(self.medium.as_deref(), self.locality.as_deref());
        match self.kind.as_str() {
            "BlockStored" => Some(KvEvent::Stored(BlockStored {
                block_hashes,
                parent_block_hash: self.parent_block_hash.map(|hash| hash.0),
                token_ids: self.token_ids,
                block_size: self.block_size,
                extra_keys: self.extra_keys,
                adapter: Adapter::of(self.lora_name, self.lora_id),
                medium,
            })),
            "BlockRemoved" => Some(KvEvent::Removed {
                block_hashes,
                medium,
            }),
            "AllBlocksCleared" => Some(KvEvent::Cleared),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for WireEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Event;
        impl<'de> Visitor<'de> for Event {
            type Value = WireEvent;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an event as a map or an array")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WireEvent, A::Error> {
                let mut fields = Fields::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "type" => fields.kind = map.next_value()?,
                        "block_hashes" => fields.block_hashes = map.next_value()?,
                        "parent_block_hash" => fields.parent_block_hash = map.next_value()?,
                        "token_ids" => fields.token_ids = map.next_value()?,
                        "block_size" => fields.block_size = map.next_value()?,
                        "extra_keys" => {
                            fields.extra_keys = extra_keys(map.next_value::<WireExtraKeys>()?);
                        }
                        "lora_id" => fields.lora_id = map.next_value()?,
                        "lora_name" => fields.lora_name = map.next_value()?,
                        "medium" => fields.medium = map.next_value()?,
                        "locality" => fields.locality = map.next_value()?,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(WireEvent(fields.into_event()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<WireEvent, A::Error> {
                let kind: String = required(&mut seq, "type")?;
                let mut fields = Fields {
                    kind,
                    ..Fields::default()
                };
                match fields.kind.as_str() {
                    "BlockStored" => {
                        fields.block_hashes = required(&mut seq, "block_hashes")?;
                        fields.parent_block_hash = required(&mut seq, "parent_block_hash")?;
                        fields.token_ids = required(&mut seq, "token_ids")?;
                        fields.block_size = required(&mut seq, "block_size")?;
                        fields.lora_id = seq.next_element::<Option<i64>>()?.flatten();
                        fields.medium = seq.next_element::<Option<String>>()?.flatten();
                        fields.lora_name = seq.next_element::<Option<String>>()?.flatten();
                        if let Some(keys) = seq.next_element::<WireExtraKeys>()? {
                            fields.extra_keys = extra_keys(keys);
                        }
                    }
                    "BlockRemoved" => {
                        fields.block_hashes = required(&mut seq, "block_hashes")?;
                        fields.medium = seq.next_element::<Option<String>>()?.flatten();
                    }
                    _ => {}
                }
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(WireEvent(fields.into_event()))
            }
        }
        deserializer.deserialize_any(Event)
    }
}

fn required<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(
    seq: &mut A,
    name: &'static str,
) -> Result<T, A::Error> {
    seq.next_element()?
        .ok_or_else(|| de::Error::missing_field(name))
}

/// A block hash as an integer, or as the raw digest whose last eight bytes are that integer.
struct WireHash(u64);

impl<'de> Deserialize<'de> for WireHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Hash;
        impl Visitor<'_> for Hash {
            type Value = WireHash;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a block hash as an integer or as bytes")
            }

            fn visit_u64<E: de::Error>(self, hash: u64) -> Result<WireHash, E> {
                Ok(WireHash(hash))
            }

            fn visit_i64<E: de::Error>(self, hash: i64) -> Result<WireHash, E> {
                Ok(WireHash(hash.cast_unsigned()))
            }

            fn visit_bytes<E: de::Error>(self, digest: &[u8]) -> Result<WireHash, E> {
                digest
                    .last_chunk::<8>()
                    .map(|tail| WireHash(u64::from_be_bytes(*tail)))
                    .ok_or_else(|| E::invalid_length(digest.len(), &self))
            }
        }
        deserializer.deserialize_any(Hash)
    }
}

type WireExtraKeys = Option<Vec<Option<Vec<WireExtraKey>>>>;

#[derive(Deserialize)]
#[serde(untagged)]
enum WireExtraKey {
    Text(String),
    Placed(String, i64),
    Unknown(IgnoredAny),
}

fn extra_keys(keys: WireExtraKeys) -> Vec<Vec<ExtraKey>> {
    let known = |key| match key {
        WireExtraKey::Text(text) => ExtraKey::Text(text),
        WireExtraKey::Placed(identifier, offset) => ExtraKey::Placed(identifier, offset),
        WireExtraKey::Unknown(IgnoredAny) => ExtraKey::Unknown,
    };
    keys.unwrap_or_default()
        .into_iter()
        .map(|block| block.unwrap_or_default().into_iter().map(known).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv_events::encode_batch;
    use proptest::prelude::*;

    fn any_medium() -> impl Strategy<Value = Medium> {
        prop_oneof![
            Just(Medium::Resident),
            Just(Medium::Host),
            Just(Medium::Storage),
            Just(Medium::Shared),
            Just(Medium::Unknown),
        ]
    }

    fn any_adapter() -> impl Strategy<Value = Adapter> {
        prop_oneof![
            Just(Adapter::None),
            "[a-z]{0,8}".prop_map(Adapter::Named),
            any::<i64>().prop_map(Adapter::Numbered),
        ]
    }

    #[test]
    fn media_are_known_by_the_words_of_vllm_and_of_its_connectors() {
        for (medium, locality, expected) in [
            (None, None, Medium::Resident),
            (Some("GPU"), None, Medium::Resident),
            (Some("CPU"), Some("LOCAL"), Medium::Host),
            (Some("cpu"), None, Medium::Host),
            (Some("STORAGE"), None, Medium::Storage),
            (Some("STORAGE"), Some("REMOTE"), Medium::Shared),
            (Some("TAPE"), None, Medium::Unknown),
        ] {
            assert_eq!(
                Medium::of(medium, locality),
                expected,
                "{medium:?} {locality:?}"
            );
        }
    }

    fn any_event() -> impl Strategy<Value = KvEvent> {
        let stored = (
            proptest::collection::vec(any::<u64>(), 0..4),
            any::<Option<u64>>(),
            proptest::collection::vec(any::<u32>(), 0..64),
            any::<u32>(),
            "[a-z]{0,8}",
            any_adapter(),
            any_medium(),
        )
            .prop_map(
                |(
                    block_hashes,
                    parent_block_hash,
                    token_ids,
                    block_size,
                    salt,
                    adapter,
                    medium,
                )| {
                    let extra_keys = (0..block_hashes.len())
                        .map(|block| match block {
                            0 => vec![
                                ExtraKey::Text(salt.clone()),
                                ExtraKey::Placed("i".into(), -3),
                            ],
                            _ => Vec::new(),
                        })
                        .collect();
                    KvEvent::Stored(BlockStored {
                        block_hashes,
                        parent_block_hash,
                        token_ids,
                        block_size,
                        extra_keys,
                        adapter,
                        medium,
                    })
                },
            );
        prop_oneof![
            stored,
            (proptest::collection::vec(any::<u64>(), 0..4), any_medium()).prop_map(
                |(block_hashes, medium)| KvEvent::Removed {
                    block_hashes,
                    medium
                }
            ),
            Just(KvEvent::Cleared),
        ]
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(
            timestamp in 0.0..1e10_f64,
            events in proptest::collection::vec(any_event(), 0..5),
            data_parallel_rank in any::<Option<u32>>(),
        ) {
            let batch = KvEventBatch { timestamp, events, data_parallel_rank };
            prop_assert_eq!(decode_batch(&encode_batch(&batch)).unwrap(), batch);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _ = decode_batch(&bytes);
        }

        #[test]
        fn a_damaged_payload_never_panics(
            event in any_event(),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut payload = encode_batch(&KvEventBatch {
                timestamp: 0.0,
                events: vec![event],
                data_parallel_rank: None,
            });
            let at = at.index(payload.len());
            payload[at] = byte;
            let _ = decode_batch(&payload);
        }
    }

    #[test]
    fn the_older_array_encoding_is_read_too() {
        let event = (
            "BlockStored",
            [5_u64, 6],
            Option::<u64>::None,
            [1_u32, 2],
            1_u32,
            7_u32,
            "CPU",
        );
        let named = (
            "BlockStored",
            [8_u64],
            5_u64,
            [3_u32],
            1_u32,
            7_u32,
            "GPU",
            "adapter",
        );
        let removed = ("BlockRemoved", [-1_i64], "GPU");
        let payload =
            rmp_serde::to_vec(&(2.0, (event, named, removed, ("AllBlocksCleared",)))).unwrap();
        let batch = decode_batch(&payload).unwrap();
        assert_eq!(batch.data_parallel_rank, None);
        assert_eq!(
            batch.events,
            [
                KvEvent::Stored(BlockStored {
                    block_hashes: vec![5, 6],
                    parent_block_hash: None,
                    token_ids: vec![1, 2],
                    block_size: 1,
                    adapter: Adapter::Numbered(7),
                    medium: Medium::Host,
                    ..BlockStored::default()
                }),
                KvEvent::Stored(BlockStored {
                    block_hashes: vec![8],
                    parent_block_hash: Some(5),
                    token_ids: vec![3],
                    block_size: 1,
                    adapter: Adapter::Named("adapter".into()),
                    ..BlockStored::default()
                }),
                KvEvent::Removed {
                    block_hashes: vec![u64::MAX],
                    medium: Medium::Resident,
                },
                KvEvent::Cleared,
            ]
        );
    }

    #[test]
    fn raw_digests_are_read_as_their_last_eight_bytes() {
        // [0.0, [["BlockRemoved", [bin8(32 bytes)]]], nil]
        let mut payload = vec![0x93, 0xca, 0, 0, 0, 0, 0x91, 0x92, 0xac];
        payload.extend_from_slice(b"BlockRemoved");
        payload.extend([0x91, 0xc4, 32]);
        payload.extend([9; 31]);
        payload.extend([1, 0xc0]);
        let batch = decode_batch(&payload).unwrap();
        assert_eq!(
            batch.events,
            [KvEvent::Removed {
                block_hashes: vec![0x0909_0909_0909_0901],
                medium: Medium::Resident,
            }]
        );
    }

    #[test]
    fn an_unknown_event_is_left_out() {
        let payload =
            rmp_serde::to_vec(&(0.0, (("BlockMoved", 1), ("AllBlocksCleared",)))).unwrap();
        assert_eq!(decode_batch(&payload).unwrap().events, [KvEvent::Cleared]);
    }

    #[test]
    fn an_oversized_payload_is_refused_unread() {
        let payload = vec![0; MAX_PAYLOAD_BYTES + 1];
        assert!(matches!(
            decode_batch(&payload),
            Err(DecodeError::TooLarge(_))
        ));
    }
}
