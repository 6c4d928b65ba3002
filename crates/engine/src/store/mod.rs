//! Blocks beyond the executor's memory: kept when they must leave it, shared with other instances, and
//! loaded again where that is faster than computing them.
//!
//! ```text
//! evicted  -> this instance's tiers: memory, then disk        (what falls out of one goes to the next)
//! computed -> shared tiers: a folder, Redis                   (once; others need it before we evict it)
//! a prompt -> asks near to far, off the step thread, and waits for at most as long as computing takes
//! ```
//! Nothing here can change a text. A block is named by everything that went into it ([`Identity`] and its
//! chain's hash, with the tenant's salt inside), sealed with a keyed hash over name and contents, and a
//! block that is missing, late, foreign or damaged is computed as if there were no store.

mod clerk;
mod costs;
mod key;
mod sealed;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

pub(crate) use clerk::{Ask, Clerk, Loaded, Moved};
pub(crate) use costs::Mean;
pub use key::{Identity, StoreKey};
pub use sealed::{Flaw, Sealed};

/// How far away blocks lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// In this process, beside the blocks that the model computes from.
    Memory,
    /// On this machine, for this instance.
    Disk,
    /// Where other instances find them, too.
    Shared,
}

impl Tier {
    /// Near to far.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Disk, Self::Shared];

    /// For metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Shared => "shared",
        }
    }
}

/// One place where sealed blocks lie. Bounded in bytes, and never an error to anybody: what it cannot
/// give is computed, what it cannot keep is forgotten. Called from a reading and a writing thread.
pub trait BlockStore: Send + Sync {
    /// How far away it is.
    fn tier(&self) -> Tier;

    /// How many of these blocks, from the first on, lie here. A hint.
    fn leading(&self, keys: &[StoreKey], deadline: Instant) -> usize;

    /// These blocks, as they were written, up to the first that is missing or too late.
    fn read(&self, keys: &[StoreKey], deadline: Instant) -> Vec<Bytes>;

    /// Keeps blocks that are not here yet.
    fn write(&self, blocks: Vec<(StoreKey, Bytes)>) -> Written;

    /// Forgets a block that proved to be bad.
    fn discard(&self, key: &StoreKey);
}

/// What became of blocks that were to be kept.
#[derive(Debug, Default)]
pub struct Written {
    /// Those that were not here before and are now.
    pub kept: Vec<StoreKey>,
    /// Those that had to go for them, with their contents where the next tier may want them.
    pub dropped: Vec<(StoreKey, Option<Bytes>)>,
    /// Those that could not be kept.
    pub failed: usize,
}

/// With whom an engine shares its blocks.
#[derive(Clone)]
pub struct Sharing {
    /// What the blocks of this model are.
    pub identity: Identity,
    /// Where they lie, near to far.
    pub tiers: Vec<Arc<dyn BlockStore>>,
}
