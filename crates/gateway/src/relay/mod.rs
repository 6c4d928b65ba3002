//! A request goes to a worker, and its answer comes back piece by piece.
//!
//! ```text
//! begin     place -> attempt -> first piece, or the next worker     (retries within a budget)
//!   idle, wire   a connection, kept or new, driven by whoever waits
//!   exchange     one attempt at one worker
//!   timing       how long to wait, and for whom it is pointless
//! answer    the pieces on their way to the client
//!   tap          listens: usage, finish, errors, the text so far
//!   resume       a worker lost half-way: may another go on?
//! ```
//! Whatever a worker does wrong before the first piece, the client does not see it: another worker is
//! asked. What it refuses (4xx) goes to the client as it is and is held against nobody. And whatever is
//! dropped here (the client left, the server stops) closes the connection to the worker and gives its place
//! back in the same moment, because they are owned by what was dropped.

mod answer;
mod begin;
mod budget;
mod exchange;
mod idle;
mod metrics;
mod outgoing;
mod resume;
mod tap;
mod timing;
mod wire;

use std::sync::Arc;

pub(crate) use answer::answer;
pub(crate) use begin::{Begun, begin};
pub(crate) use budget::RetryBudget;
pub use budget::RetryLimits;
pub(crate) use tap::Report;
pub use timing::RelayTimeouts;

use idle::IdleWires;
pub(crate) use metrics::RelayMetrics;

/// What all relayed requests share.
#[derive(Default)]
pub(crate) struct Relay {
    idle: Arc<IdleWires>,
    pub(crate) metrics: RelayMetrics,
}
