//! The thresholds of health.

use std::time::Duration;

/// When a worker is out, back, stale, wedged or warm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HealthConfig {
    /// Failed connections in a row, of probes or requests, that put it out.
    pub unreachable_to_fall: u32,
    /// Probes in a row that were answered with a 5xx or not at all that put it out.
    pub failures_to_fall: u32,
    /// Answers in a row that bring it back.
    pub alive_to_rise: u32,
    /// Age of its metrics from which they are not believed: ten turns of the scrape loop.
    pub stale_after: Duration,
    /// Time without any movement while requests run. A long prefill moves no counter but that of the
    /// engine's steps, which old engines do not print: so longer than the longest prefill.
    pub wedged_after: Duration,
    /// How long a newcomer takes to get its full share.
    pub slow_start: Duration,
    /// The share it starts with, over 0 and up to 1.
    pub slow_start_from: f64,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            unreachable_to_fall: 2,
            failures_to_fall: 2,
            alive_to_rise: 2,
            stale_after: Duration::from_secs(5),
            wedged_after: Duration::from_secs(30),
            slow_start: Duration::from_secs(10),
            slow_start_from: 0.2,
        }
    }
}
