//! Asks every worker, twice a second, whether it lives and how full it is.
//!
//! Each worker has two loops of its own, so that none waits for another: a *probe* on a fresh connection
//! (a dead process is known by its refusal, which a kept connection would hide) and a *scrape* of its
//! metrics on a kept one. A loop has one request in flight, never two: an engine that is slow to answer
//! must not be buried under questions. A scrape that fails is tried again ever more slowly.

mod http_get;
mod probe;
mod scrape_loop;

pub use http_get::{GetError, Getter, Page};

pub(crate) use probe::probe_loop;
pub(crate) use scrape_loop::scrape_loop;

use std::time::Duration;

/// The largest metrics page read: fifty times that of a vLLM with one rank.
pub const MAX_PAGE_BYTES: usize = 4 << 20;

/// How often, and for how long, workers are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrapeConfig {
    /// Between two scrapes of one worker.
    pub scrape_every: Duration,
    /// For a whole scrape.
    pub scrape_timeout: Duration,
    /// The longest pause after scrapes that failed.
    pub scrape_pause_at_most: Duration,
    /// Between two probes of one worker.
    pub probe_every: Duration,
    /// For a connection. A worker's death must show within two seconds, also when its whole machine is
    /// gone and nobody is left to refuse: interval and two of these must fit.
    pub connect_timeout: Duration,
    /// For the answer to a probe.
    pub probe_timeout: Duration,
}

impl Default for ScrapeConfig {
    fn default() -> Self {
        Self {
            scrape_every: Duration::from_millis(500),
            scrape_timeout: Duration::from_secs(2),
            scrape_pause_at_most: Duration::from_secs(10),
            probe_every: Duration::from_millis(500),
            connect_timeout: Duration::from_millis(500),
            probe_timeout: Duration::from_secs(2),
        }
    }
}
