//! The response cache: whoever asks what was asked before is answered at once, and whoever asks what is being
//! answered right now shares that answer. Tenants are walled off from each other.
//!
//! ```text
//! request -> fingerprint -> policy -> store -> hit
//!            (same question?)  (may we?)  └─ miss -> flight -> recording -> entry -> store
//!                                                    (one generation    (both forms,  (memory,
//!                                                     for all who ask)   replayable)   Redis)
//! ```
//! The rule of the house holds everywhere: a lost store, a forged entry or an unknown field costs time. It never
//! changes an answer and never shows one to somebody else.

mod asking;
mod cache;
mod counts;
mod entry;
mod fingerprint;
mod flight;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod policy;
mod recording;
mod secret;
mod store;

pub use asking::{Answer, AnswerBody, AnswerStream, Asking, Origin};
pub use cache::{Cache, Hit, Recalled, Stores};
pub use counts::{CacheCounts, LATENCY_BUCKETS, Operation, Saved, StoreOutcome, Tier};
pub use fingerprint::{Fingerprint, MAX_CONTEXT_BYTES, Route, Subject, Unclear, Wants};
pub use flight::{Broken, Head, Part, Source};
pub use policy::{
    Bypass, DEFAULT_MAX_ENTRY_BYTES, DEFAULT_TTL, Directives, MAX_VARIANTS, Mode, Permit, Policy,
};
pub use recording::Unfit;
pub use secret::Secret;
pub use store::redis::breaker::Breaker as RedisBreaker;
pub use store::redis::{Address as RedisAddress, AddressError, GET_BUDGET, Link as RedisLink};
pub use store::{DEFAULT_MEMORY_BYTES, Held, Scope};
