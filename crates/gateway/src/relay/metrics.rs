//! What the relay counts.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// Counts of what went wrong between workers and clients, and what was done about it.
#[derive(Debug, Default)]
pub(crate) struct RelayMetrics {
    pub(super) failed_attempts: Counter,
    pub(super) retries: Counter,
    pub(super) retries_exhausted: Counter,
    pub(super) streams_lost: Counter,
    pub(super) streams_continued: Counter,
}

impl RelayMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let mut register = |name: &str, help: &str, counter: &Counter| {
            registry.register(name, help, counter.clone());
        };
        register(
            "forespeak_relay_failed_attempts",
            "Attempts at a worker that failed before the first piece of an answer",
            &self.failed_attempts,
        );
        register(
            "forespeak_relay_retries",
            "Requests sent to another worker after a failed attempt",
            &self.retries,
        );
        register(
            "forespeak_relay_retries_exhausted",
            "Failed requests that were not tried again: too many attempts, or no budget left",
            &self.retries_exhausted,
        );
        register(
            "forespeak_relay_streams_lost",
            "Answers that their worker broke off",
            &self.streams_lost,
        );
        register(
            "forespeak_relay_streams_continued",
            "Of these, continued by another worker",
            &self.streams_continued,
        );
    }
}
