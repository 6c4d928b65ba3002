//! One choice of one request, as the scheduler sees it: tokens, and how far they are computed.

use std::sync::Arc;

use model::BLOCK_TOKENS;

use crate::blocks::{BlockHash, BlockTable, Chain};
use crate::request::Priority;

/// Names a sequence; later arrivals have larger numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SeqId(pub(crate) u64);

/// Who comes first: the better class, then the earlier arrival. The last in this order is preempted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) priority: Priority,
    pub(crate) id: SeqId,
}

/// What the scheduler is told of a new sequence.
#[derive(Debug, Clone)]
pub(crate) struct NewSequence {
    pub(crate) prompt: Vec<u32>,
    pub(crate) priority: Priority,
    pub(crate) cache_salt: Option<Arc<str>>,
    /// Most prompt tokens in one step, besides the step's own bound.
    pub(crate) max_chunk: usize,
    /// Whether cached blocks may stand for prompt tokens. Not when every prompt row is to be scored.
    pub(crate) reads_cache: bool,
}

/// Tokens, blocks and progress of a sequence.
///
/// `computed` only counts rows whose tokens are final. A step may compute more rows than are kept (as
/// speculation does): they are overwritten by not counting them.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) rank: Rank,
    /// Prompt, then answer.
    pub(crate) tokens: Vec<u32>,
    pub(crate) prompt_len: usize,
    /// Tokens whose keys and values are in the blocks.
    pub(crate) computed: usize,
    pub(crate) table: BlockTable,
    pub(crate) chain: Chain,
    /// Blocks that were offered to the cache, or came out of it.
    pub(super) published: usize,
    pub(super) max_chunk: usize,
    pub(super) reads_cache: bool,
    /// Sequences with the same prompt that wait until this one has computed it.
    pub(super) followers: Vec<SeqId>,
    /// Cached tokens at the first admission.
    pub(super) cached: Option<usize>,
    pub(super) waits_for_leader: bool,
    /// Out of the queue until its blocks were loaded, or nobody waits for them any more.
    pub(super) waits_for_blocks: bool,
}

impl Sequence {
    pub(super) fn new(rank: Rank, new: NewSequence) -> Self {
        let mut chain = Chain::new(new.cache_salt);
        chain.extend(&new.prompt);
        Self {
            rank,
            prompt_len: new.prompt.len(),
            tokens: new.prompt,
            computed: 0,
            table: BlockTable::default(),
            chain,
            published: 0,
            max_chunk: new.max_chunk.max(1),
            reads_cache: new.reads_cache,
            followers: Vec::new(),
            cached: None,
            waits_for_leader: false,
            waits_for_blocks: false,
        }
    }

    /// Names of the blocks that may come out of the cache. The last token is computed even if its block
    /// is cached: its scores are wanted.
    pub(super) fn sharable(&self) -> &[BlockHash] {
        let blocks = if self.reads_cache {
            (self.tokens.len() - 1) / BLOCK_TOKENS
        } else {
            0
        };
        &self.chain.hashes()[..blocks]
    }

    /// Rows to compute before the next token can be chosen.
    pub(super) fn missing(&self) -> usize {
        self.tokens.len() - self.computed
    }
}
