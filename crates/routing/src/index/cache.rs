//! Which cache is meant: a worker's, or that of one of its ranks.

use crate::worker::WorkerId;

/// One KV cache. A worker has one, unless it is several data-parallel ranks behind one address: these share nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheId {
    /// Whose it is.
    pub worker: WorkerId,
    /// Of which rank; 0 for a worker without ranks.
    pub rank: u16,
}

impl From<WorkerId> for CacheId {
    /// Of the first rank, which is mostly the only one.
    fn from(worker: WorkerId) -> Self {
        Self { worker, rank: 0 }
    }
}
