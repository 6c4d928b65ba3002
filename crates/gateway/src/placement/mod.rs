//! Where a request goes: which worker of a pool, now or when there is room, or nowhere.
//!
//! ```text
//! ask        a request that wants a worker
//! reading      its prompt becomes keys           (tokenizer, template, memory)
//! desk         it is admitted, waits, or is refused
//! books          the workers are weighed, one is chosen and booked
//! placement  the worker, held until the answer ends
//! ```
//! `events` tells the index what workers cache, `recycling` restarts those that leak or are stuck.
//!
//! Decisions themselves are `routing`'s, what is known of the workers is `fleet`'s: here they meet a clock,
//! a lock and tasks.

mod account;
mod ask;
mod books;
mod chosen;
mod claim;
mod config;
mod desk;
mod events;
mod explain;
mod metrics;
mod outcome;
#[expect(
    clippy::module_inception,
    reason = "the thing that all of this is about"
)]
mod placement;
mod pool;
mod ranks;
mod reading;
mod recycling;
mod refusal;
mod report;
mod sent;
mod shared;
#[cfg(test)]
mod tests;

pub use ask::{Ask, ChatSpans, PromptSpans};
pub use chosen::Chosen;
pub use config::{DEFAULT_DECISIONS_KEPT, DEFAULT_MEMO_BYTES, PoolConfig};
pub use explain::Explained;
pub use metrics::PlacementMetrics;
pub use outcome::{Outcome, Reported};
pub use placement::Placement;
pub use pool::Pool;
pub use recycling::{Hook, RecyclingConfig};
pub use refusal::refusal_error;
pub use report::{PoolReport, WorkerReport};
pub use routing::admission::{Refusal, RefusalCause};
