//! What the engine measures of itself.

use crate::config::EngineConfig;

/// The engine's metrics under vLLM's names.
#[derive(Debug)]
pub struct Metrics {}

impl Metrics {
    pub(crate) fn new(_config: &EngineConfig) -> Self {
        Self {}
    }

    /// Appends the metrics in Prometheus' text format, without the closing `# EOF`.
    pub fn encode(&self, _text: &mut String) {}

    /// Sequences that are in the steps now.
    pub fn running(&self) -> usize {
        0
    }

    /// Sequences that wait for room.
    pub fn waiting(&self) -> usize {
        0
    }

    /// Share of blocks held by requests, 0 to 1.
    pub fn kv_cache_usage(&self) -> f64 {
        0.0
    }

    pub(crate) fn refused_for_queue(&self) {}
}
