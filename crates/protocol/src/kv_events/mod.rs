//! What a worker tells about its KV cache: which blocks it holds and which are gone.
//!
//! The encoding is vLLM's, so that routers made for vLLM can listen to us and we can listen to vLLM:
//! a message has three frames, `topic`, `sequence number` (u64, big endian) and a msgpack payload
//! `[timestamp, [event, …], data_parallel_rank]`. Events are maps (vLLM 0.24 and later) or arrays
//! (before, and SGLang); we write maps and read both.

mod decode;
mod encode;

pub use decode::{DecodeError, MAX_PAYLOAD_BYTES, decode_batch};
pub use encode::encode_batch;

/// Where blocks lie. On the wire it is vLLM's `medium`, and its `locality` for what the medium leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Medium {
    /// `GPU`: the memory the model computes from. vLLM's own CPU build says so, too, and so do we; senders that
    /// tell no medium mean it.
    #[default]
    Resident,
    /// `CPU`: host memory, from which blocks are loaded.
    Host,
    /// `STORAGE`: a disk.
    Storage,
    /// `STORAGE`, `REMOTE`: where other instances find them, too.
    Shared,
    /// A word this version does not know.
    Unknown,
}

impl Medium {
    const REMOTE: &str = "REMOTE";

    /// vLLM's word for it, and for how near it is.
    fn words(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Resident => ("GPU", None),
            Self::Host => ("CPU", None),
            Self::Storage => ("STORAGE", Some("LOCAL")),
            Self::Shared => ("STORAGE", Some(Self::REMOTE)),
            Self::Unknown => ("UNKNOWN", None),
        }
    }

    /// Connectors outside of vLLM write the words in small letters.
    fn of(medium: Option<&str>, locality: Option<&str>) -> Self {
        let is_remote = locality.is_some_and(|word| word.eq_ignore_ascii_case(Self::REMOTE));
        match medium.map(str::to_ascii_uppercase).as_deref() {
            None | Some("GPU") => Self::Resident,
            Some("CPU" | "STORAGE" | "DISK") if is_remote => Self::Shared,
            Some("CPU") => Self::Host,
            Some("STORAGE" | "DISK") => Self::Storage,
            Some(_) => Self::Unknown,
        }
    }
}

/// The sequence number that ends a replay.
pub const END_OF_REPLAY: u64 = u64::MAX;

/// What happened to the cache in one or a few steps.
#[derive(Debug, Clone, PartialEq)]
pub struct KvEventBatch {
    /// Seconds since the Unix epoch.
    pub timestamp: f64,
    /// In the order in which they happened.
    pub events: Vec<KvEvent>,
    /// Which replica of a data-parallel group speaks.
    pub data_parallel_rank: Option<u32>,
}

/// One change of the cache.
#[derive(Debug, Clone, PartialEq)]
pub enum KvEvent {
    /// Consecutive full blocks became reusable.
    Stored(BlockStored),
    /// Blocks were evicted.
    Removed {
        /// Their hashes.
        block_hashes: Vec<u64>,
        /// From where.
        medium: Medium,
    },
    /// The cache is empty.
    Cleared,
}

/// Consecutive full blocks that became reusable.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BlockStored {
    /// One per block. Opaque to listeners but for equality.
    pub block_hashes: Vec<u64>,
    /// The block before the first, `None` at the start of a sequence.
    pub parent_block_hash: Option<u64>,
    /// The tokens of all blocks.
    pub token_ids: Vec<u32>,
    /// Tokens in a block.
    pub block_size: u32,
    /// What besides the tokens went into the hashes, one entry per block: a cache salt stands in the
    /// entry of a sequence's first block.
    pub extra_keys: Vec<Vec<ExtraKey>>,
    /// What they were computed with besides the model.
    pub adapter: Adapter,
    /// Where they lie. Of blocks that lie elsewhere than the model computes from, some senders tell the hashes only:
    /// no parent, no tokens, a block size of 0.
    pub medium: Medium,
}

/// A LoRA adapter, as an event tells it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Adapter {
    /// The model alone.
    #[default]
    None,
    /// By the name under which clients ask for it.
    Named(String),
    /// By a number of the worker's own: all that senders told before they told names.
    Numbered(i64),
}

impl Adapter {
    fn of(name: Option<String>, number: Option<i64>) -> Self {
        match (name, number) {
            (Some(name), _) => Self::Named(name),
            (None, Some(number)) => Self::Numbered(number),
            (None, None) => Self::None,
        }
    }

    fn name(&self) -> Option<&str> {
        match self {
            Self::Named(name) => Some(name),
            Self::None | Self::Numbered(_) => None,
        }
    }

    fn number(&self) -> Option<i64> {
        match self {
            Self::Numbered(number) => Some(*number),
            Self::None | Self::Named(_) => None,
        }
    }
}

/// Something besides tokens that tells two blocks apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExtraKey {
    /// A cache salt or an adapter's name.
    Text(String),
    /// An identifier and its offset in the block (an image in vLLM).
    Placed(String, i64),
    /// Something this version does not know; two unknown keys must not be taken for equal.
    Unknown,
}

/// The frame of a sequence number.
pub fn sequence_frame(sequence: u64) -> [u8; 8] {
    sequence.to_be_bytes()
}

/// Reads the frame of a sequence number; `None` when it is not eight bytes long.
pub fn parse_sequence_frame(frame: &[u8]) -> Option<u64> {
    frame.try_into().ok().map(u64::from_be_bytes)
}
