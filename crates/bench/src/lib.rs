//! Load for anything that speaks OpenAI's dialect, and what came of it.
//!
//! - [`options`] is what `forespeak bench` can be told.
//! - [`workload`] makes requests: plain prompts with shared beginnings, growing chats over shared documents, recorded
//!   traces. [`text`] is what they are made of, [`arrivals`] says when they are due.
//! - [`client`] sends one and writes down when its bytes came, before it looks at them.
//! - [`run()`] sends all of them. It runs on one thread and parses as little as it can, because it often shares
//!   its cores with what it measures.
//! - [`summary`] and [`report`] are the figures: `vllm bench serve`'s table, one JSON object, a line per request.
//!
//! Latencies are given from the moment a request was sent and from the moment it was *due*: a client that
//! waits for a slow server before it sends the next request hides the server's worst moments.

pub mod arrivals;
pub mod client;
pub mod error;
pub mod options;
pub mod record;
pub mod report;
pub mod run;
pub mod summary;
pub mod text;
pub mod workload;

pub use error::BenchError;
pub use options::Options;
pub use record::{Outcome, Record};
pub use run::{Outcomes, run};
pub use summary::Summary;
