//! A fleet on a virtual clock: simulated workers behind the production routing code.
//!
//! Policies are compared here before any device is rented. Nothing does I/O or looks at a clock, everything random
//! comes from a seed, and an hour of traffic takes a second.
//!
//! - [`worker`] is one vLLM-like worker: prefill rate, batch-dependent time between tokens, chunked prefill under
//!   a token budget, finite KV cache ([`kv`]) with reuse and eviction, preemption. It is told to take a step and
//!   says how long it takes and what will have happened, so that a mock server can drive it on a real clock.
//! - [`spec`] has kinds of workers, from one small card to a 70B model over four large ones.
//! - [`fleet`] runs a workload over several of them: scrapes come every half second, KV events late or not at
//!   all, as they would in production.
//! - [`workload`] makes up growing chats over shared documents, [`mooncake`] reads recorded traces.
//! - [`report`] is what a run showed.
//!
//! ```
//! use std::time::Duration;
//! use forespeak_simulator::spec::WorkerSpec;
//! use forespeak_simulator::workload::Chats;
//! use forespeak_simulator::{FleetConfig, simulate};
//! use routing::Policy;
//!
//! let chats = Chats { lasting: Duration::from_secs(30), ..Chats::default() }.generate();
//! let run = |policy| simulate(&FleetConfig::new(8, WorkerSpec::a100_8b(), policy), &chats);
//! let (round_robin, fit) = (run(Policy::RoundRobin), run(Policy::Fit));
//! assert!(fit.hit_share > round_robin.hit_share + 0.2);
//! assert!(fit.ttft.mean < round_robin.ttft.mean);
//! ```

mod agenda;
pub mod error;
pub mod fleet;
pub mod kv;
mod member;
pub mod mooncake;
pub mod report;
pub mod rng;
pub mod spec;
pub mod worker;
pub mod workload;

pub use error::SimulatorError;
pub use fleet::{FleetConfig, simulate};
