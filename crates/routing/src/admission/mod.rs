//! Who may enter: books of what is in flight, a fair waiting room, and the verdict on a request.
//!
//! The pieces are values the gateway owns: one [`WorkerLedger`] per worker, one [`FairQueue`] and one [`DrainRate`]
//! per pool. [`admit`] looks at them and decides; nothing here waits, locks or looks at a clock.

mod drain;
mod gate;
mod ledger;
mod queue;
mod reservation;

pub use drain::{DrainRate, MAX_RETRY, MIN_RETRY};
pub use gate::{
    Patience, Pressure, Refusal, RefusalCause, Rules, UsageLimits, Verdict, admit, turned_away,
};
pub use ledger::{Demand, Ticket, WorkerLedger};
pub use queue::{FairQueue, QUANTUM_TOKENS, QueueFull, QueueLimits, TenantId, Waiting};
pub use reservation::{Release, Reservation};
