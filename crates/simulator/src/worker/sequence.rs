//! One request inside a worker: how far it is and which blocks it holds.

use super::types::{Job, WorkerEvent};
use crate::kv::{BlockId, KvCache};

pub(super) struct Sequence {
    pub(super) job: Job,
    pub(super) hashes: Vec<u64>,
    pub(super) held: Vec<BlockId>,
    /// Tokens in the cache or computed.
    pub(super) computed: u64,
    pub(super) generated: u64,
    pub(super) cached_tokens: u64,
    /// Full blocks named so far.
    pub(super) named: usize,
    pub(super) first_admission: bool,
}

impl Sequence {
    pub(super) fn new(job: Job) -> Self {
        let hashes = engine_hashes(&job.blocks);
        Self {
            job,
            hashes,
            held: Vec::new(),
            computed: 0,
            generated: 0,
            cached_tokens: 0,
            named: 0,
            first_admission: true,
        }
    }

    /// Tokens that must be computed before the next one comes out.
    pub(super) fn target(&self) -> u64 {
        self.job.prompt_tokens + self.generated
    }

    pub(super) fn decoding(&self) -> bool {
        self.computed + 1 == self.target() && self.generated > 0
    }
}

/// Makes the blocks that have become full findable.
pub(super) fn name_full_blocks(
    sequence: &mut Sequence,
    kv: &mut KvCache,
    block_tokens: u32,
    events: &mut Vec<WorkerEvent>,
) {
    let full = (sequence.computed / u64::from(block_tokens)) as usize;
    let upto = full.min(sequence.hashes.len()).min(sequence.held.len());
    if upto <= sequence.named {
        return;
    }
    let parent = sequence
        .named
        .checked_sub(1)
        .map(|before| sequence.hashes[before]);
    for place in sequence.named..upto {
        kv.name(sequence.held[place], sequence.hashes[place]);
    }
    events.push(WorkerEvent::Stored {
        id: sequence.job.id,
        first: sequence.named,
        parent,
        hashes: sequence.hashes[sequence.named..upto].to_vec(),
        blocks: sequence.job.blocks[sequence.named..upto].to_vec(),
    });
    sequence.named = upto;
}

/// The engine's own names for blocks: chained, and nobody else's business.
fn engine_hashes(blocks: &[u32]) -> Vec<u64> {
    let mut parent = 0x656e_6769_6e65_u64;
    blocks
        .iter()
        .map(|block| {
            let mut z =
                (parent.rotate_left(23) ^ u64::from(*block)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            parent = z ^ (z >> 32);
            parent
        })
        .collect()
}
