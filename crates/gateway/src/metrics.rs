//! What the gateway counts, and the page on which it stands beside the worker's metrics.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::relay::RelayMetrics;
use crate::tenants::TenantMetrics;

/// Seconds; wide enough for a health check and for a long answer.
const DURATION_BUCKETS: [f64; 20] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0,
];

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Outcome {
    pub(crate) route: &'static str,
    pub(crate) status: u32,
}

pub(crate) struct HttpMetrics {
    registry: Registry,
    requests: Family<Outcome, Counter>,
    duration: Histogram,
    first_token: Histogram,
    connections: Gauge,
    pub(crate) tenants: TenantMetrics,
}

impl HttpMetrics {
    pub(crate) fn new(relay: &RelayMetrics) -> Self {
        let requests = Family::default();
        let duration = Histogram::new(DURATION_BUCKETS);
        let first_token = Histogram::new(DURATION_BUCKETS);
        let connections = Gauge::default();
        let mut registry = Registry::default();
        registry.register(
            "forespeak_http_requests",
            "Requests to generate, by route and status",
            requests.clone(),
        );
        registry.register(
            "forespeak_http_request_duration_seconds",
            "Time from a request's arrival to the end of its answer",
            duration.clone(),
        );
        registry.register(
            "forespeak_http_time_to_first_token_seconds",
            "Time from a request's arrival to the first piece of its answer",
            first_token.clone(),
        );
        registry.register(
            "forespeak_http_connections",
            "Open connections",
            connections.clone(),
        );
        relay.register(&mut registry);
        let tenants = TenantMetrics::default();
        tenants.register(&mut registry);
        Self {
            tenants,
            registry,
            requests,
            duration,
            first_token,
            connections,
        }
    }

    pub(crate) fn finished(&self, outcome: Outcome, first: Option<Duration>, took: Duration) {
        self.requests.get_or_create(&outcome).inc();
        self.duration.observe(took.as_secs_f64());
        if let Some(first) = first {
            self.first_token.observe(first.as_secs_f64());
        }
    }

    /// Counts a connection until the guard is dropped.
    pub(crate) fn connection(&self) -> ConnectionGuard {
        self.connections.inc();
        ConnectionGuard(self.connections.clone())
    }

    /// Appends everything in OpenMetrics' text format, without the closing line.
    pub(crate) fn encode(&self, text: &mut String) {
        // Writing to a string cannot fail.
        let written = encode_registry(text, &self.registry);
        debug_assert!(written.is_ok());
    }
}

pub(crate) struct ConnectionGuard(Gauge);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// OpenMetrics as the older Prometheus text format, which is what vLLM writes and most tools read:
/// there a counter's type stands under its full name, and units and the closing line are unknown.
pub(crate) fn to_prometheus_text(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len() + 64);
    let mut help: Option<(&str, &str)> = None;
    for line in openmetrics.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ');
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|typed| typed.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            if let Some((_, words)) = help.take().filter(|(described, _)| *described == name) {
                text.extend(["# HELP ", name, suffix, " ", words, "\n"]);
            }
            text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
        } else if !line.starts_with("# UNIT ") && line != "# EOF" {
            text.extend([line, "\n"]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_carry_their_type_under_their_full_name() {
        let metrics = HttpMetrics::new(&RelayMetrics::default());
        metrics.finished(
            Outcome {
                route: "/v1/completions",
                status: 200,
            },
            Some(Duration::from_millis(2)),
            Duration::from_millis(3),
        );
        let mut openmetrics = String::new();
        metrics.encode(&mut openmetrics);
        openmetrics.push_str("# EOF\n");
        let text = to_prometheus_text(&openmetrics);
        assert!(
            text.contains("# TYPE forespeak_http_requests_total counter\n"),
            "{text}"
        );
        assert!(
            text.contains(
                "forespeak_http_requests_total{route=\"/v1/completions\",status=\"200\"} 1\n"
            ),
            "{text}"
        );
        assert!(text.contains("# TYPE forespeak_http_request_duration_seconds histogram\n"));
        assert!(!text.contains("EOF"));
    }
}
