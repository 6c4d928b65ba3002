//! Pure decisions: which worker holds which prefix, where a request goes, and whether it may go at all.
//!
//! Nothing here does I/O, waits, locks or looks at a clock; time and chance come in as arguments. So every
//! decision can be property-tested, explained and replayed, and the simulator runs the code that production runs.
//!
//! The way of a request:
//! 1. [`keys`] names its prefixes, [`memo`] remembers the names of a growing chat;
//! 2. [`index`] says how much of it each worker holds;
//! 3. [`admission`] says whether it may go, from books of what is in flight;
//! 4. [`policy`] weighs the workers and returns a [`Decision`] that can be shown;
//! 5. [`calibration`] compares what was predicted with what the worker then reported.
//!
//! ```
//! use std::time::Duration;
//! use forespeak_routing::index::{IndexConfig, PrefixIndex, Source};
//! use forespeak_routing::keys::{KeySeed, Root, TokenChain};
//! use forespeak_routing::{Draw, Policy, Priority, RequestView, WorkerId, WorkerView};
//!
//! let seed = KeySeed(1);
//! let workers: Vec<_> = (0..8).map(|id| WorkerView::idle(WorkerId(id), 300_000)).collect();
//! let mut index = PrefixIndex::new(IndexConfig::new(seed));
//! for worker in &workers {
//!     index.set_worker(worker.id, Source::Expectation, Some(18_750));
//! }
//!
//! let mut chat = TokenChain::new(Root::new(seed, "tenant", None), index.block_tokens());
//! let mut turn = |tokens: &[u32], turn: u64| {
//!     let now = Duration::from_secs(turn);
//!     chat.extend(tokens);
//!     let matches = index.matches(chat.keys(), now);
//!     let request = RequestView {
//!         prompt_tokens: chat.tokens() as u64,
//!         expected_output_tokens: 200,
//!         matches: &matches,
//!         block_tokens: 16,
//!         priority: Priority::Normal,
//!         session: 7,
//!     };
//!     let decision = Policy::Fit.decide(&request, &workers, Draw { turn, random: turn * 31 }).unwrap();
//!     index.expect(decision.chosen, chat.keys(), now);
//!     decision.chosen
//! };
//! let home = turn(&[1; 2_000], 0);
//! assert_eq!(turn(&[2; 300], 1), home);
//! assert_eq!(turn(&[3; 300], 2), home);
//! ```

pub mod admission;
pub mod calibration;
pub mod decision;
pub mod error;
mod gradual;
mod hash;
pub mod index;
pub mod keys;
pub mod memo;
pub mod policy;
mod request;
mod worker;

pub use decision::Decision;
pub use error::RoutingError;
pub use index::Matches;
pub use policy::{Draw, Policy};
pub use request::{Priority, RequestView};
pub use worker::{
    ASSUMED_INTER_TOKEN, ASSUMED_PREFILL_TOKENS_PER_SECOND, ASSUMED_STEP_TOKENS, LedgerView,
    Speeds, WorkerId, WorkerView,
};
