//! What workers say about their KV caches, as a stream for the prefix index.
//!
//! ```text
//! publisher ──zmtp──► sequence (anything missing?) ──► KvUpdate ──► the prefix index
//!     ▲                   │ gap
//!     └──── replay ◄──────┘
//! ```
//!
//! One subscriber per worker and data-parallel rank. It reconnects by itself, asks for what it missed, and
//! where that cannot be had it says so: the index is told to forget what it knew exactly of that rank, a
//! counter moves and a line is logged. Events are hints from foreign hosts: sizes are capped on the wire,
//! and a slow index slows the subscriber down rather than filling memory. If that makes the publisher drop
//! messages, it is a gap like any other.

mod counters;
mod sequence;
mod subscriber;
mod zmtp;

pub use counters::{EventCounters, EventCounts};
pub use sequence::Lost;
pub use subscriber::EventsConfig;

pub(crate) use subscriber::{Source, Subscriber};
pub(crate) use zmtp::Endpoint;

use protocol::kv_events::KvEventBatch;

use routing::WorkerId;

/// A message for the keeper of the prefix index. All messages of one worker and rank come in order.
#[derive(Debug, Clone, PartialEq)]
pub struct KvUpdate {
    /// Whose cache.
    pub worker: WorkerId,
    /// Which of its data-parallel ranks.
    pub rank: u32,
    /// What about it.
    pub change: KvChange,
}

/// What became of a worker's cache, or of our knowledge of it.
#[derive(Debug, Clone, PartialEq)]
pub enum KvChange {
    /// Blocks came and went.
    Batch(KvEventBatch),
    /// What is known exactly of this rank's cache is void.
    Forget(Lost),
    /// The worker has left the fleet. The last message of its number before that is given out again.
    Gone,
}
