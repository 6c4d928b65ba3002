//! What we know of the workers, and how we come to know it.
//!
//! ```text
//! registry     who is there: configuration, file, DNS, admin calls -> Snapshot
//! scrape       asks each one: does it live, how full is it
//! exposition     a metrics page -> samples
//! observe        samples of vLLM, SGLang, llama.cpp -> Observation -> Rates
//! kv_events    listens to what each one caches -> KvUpdate, for the prefix index
//! health       facts and time -> Condition; a pool's conditions -> Standing (never nobody)
//! breaker      outcomes of requests -> whether to send more
//! hearsay      what other gateways say of a worker: advice
//! recycle      a worker that leaks or is stuck -> drain it, restart it
//! worker       all of that for one worker, and the Attempt that a request holds
//! fleet        the tasks that keep it true
//! ```
//!
//! `exposition`, `observe`, `health`, `breaker`, `recycle` and the sequence of KV events are pure: values
//! in, values out, the time is an argument. Sockets, files and clocks are in `scrape`, `kv_events`,
//! `registry` and `fleet`.

mod backoff;
pub mod breaker;
mod error;
pub mod exposition;
mod fleet;
pub mod health;
mod hearsay;
pub mod kv_events;
pub mod observe;
pub mod recycle;
pub mod registry;
pub mod scrape;
mod spec;
mod worker;

pub use backoff::Backoff;
pub use error::FleetError;
pub use fleet::{Fleet, FleetConfig};
pub use hearsay::Hearsay;
pub use kv_events::{KvChange, KvUpdate};
pub use registry::{DnsSource, Registry, Snapshot, parse_worker_file, read_worker_file};
pub use routing::WorkerId;
pub use spec::{DEFAULT_POOL, EventsSpec, MAX_RANKS, Secret, WorkerSpec, WorkerUrl};
pub use worker::{Attempt, Fault, ScrapeCounters, ScrapeCounts, Sighting, Worker};
