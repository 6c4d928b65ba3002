//! What an answer's header says about the load of the worker that gave it (ORCA, as vLLM writes it).
//!
//! ```text
//! endpoint-load-metrics: JSON {"named_metrics":{"num_requests_waiting":3,"kv_cache_usage_perc":0.4}}
//! endpoint-load-metrics: TEXT named_metrics.num_requests_waiting=3.0,named_metrics.kv_cache_usage_perc=0.4
//! ```
//! A worker makes such a report from all its metrics, which takes it longer than we would like for every answer. So it is asked
//! for one only where its metrics page is late; one that comes unasked is read all the same.

use serde_json::Value;

/// The header of an answer.
pub const HEADER: &str = "endpoint-load-metrics";

/// The header of a request that asks for it, and what it says.
pub const ASK_HEADER: &str = "endpoint-load-metrics-format";
/// The form that is asked for.
pub const ASK_VALUE: &str = "JSON";

/// A longer report is nobody's.
const MAX_BYTES: usize = 4 << 10;

const WAITING: &str = "num_requests_waiting";
const KV_USAGE: &str = "kv_cache_usage_perc";

/// What is known of a worker's load from one answer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LoadReport {
    /// Share of the KV cache in use.
    pub kv_usage: Option<f64>,
    /// Requests waiting.
    pub waiting: Option<u32>,
}

impl LoadReport {
    /// Reads the header's value; `None` if it says nothing that is known here.
    pub fn read(value: &str) -> Option<Self> {
        if value.len() > MAX_BYTES {
            return None;
        }
        let value = value.trim();
        let report = if let Some(pairs) = value.strip_prefix("TEXT ") {
            Self::of(|name| {
                pairs.split(',').find_map(|pair| {
                    let (key, number) = pair.trim().split_once('=')?;
                    let key = key.strip_prefix("named_metrics.").unwrap_or(key);
                    (key == name).then(|| number.parse().ok())?
                })
            })
        } else {
            let json = value.strip_prefix("JSON ").unwrap_or(value);
            let json: Value = serde_json::from_str(json).ok()?;
            Self::of(|name| json.get("named_metrics")?.get(name)?.as_f64())
        };
        (report != Self::default()).then_some(report)
    }

    fn of(metric: impl Fn(&str) -> Option<f64>) -> Self {
        let known = |name| metric(name).filter(|number| number.is_finite() && *number >= 0.0);
        Self {
            kv_usage: known(KV_USAGE).map(|usage| usage.min(1.0)),
            waiting: known(WAITING).map(|waiting| waiting as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        let told = Some(LoadReport {
            kv_usage: Some(0.4),
            waiting: Some(3),
        });
        for value in [
            r#"JSON {"named_metrics":{"num_requests_waiting":3.0,"kv_cache_usage_perc":0.4}}"#,
            "TEXT named_metrics.num_requests_waiting=3.0, named_metrics.kv_cache_usage_perc=0.4",
            r#"{"cpu_utilization":0.1,"named_metrics":{"kv_cache_usage_perc":0.4,"num_requests_waiting":3}}"#,
        ] {
            assert_eq!(LoadReport::read(value), told, "{value}");
        }
    }

    #[test]
    fn nonsense_says_nothing() {
        let long = format!("TEXT kv_cache_usage_perc=0.4,{}", "x".repeat(MAX_BYTES));
        for value in [
            "",
            "TEXT",
            "JSON {",
            "JSON [1]",
            "TEXT kv_cache_usage_perc=NaN",
            "TEXT a=1",
            "CBOR x",
            &long,
        ] {
            assert_eq!(LoadReport::read(value), None, "{value:.40}");
        }
    }
}
