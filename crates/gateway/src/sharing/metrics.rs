//! What the exchange with other gateways counts, under its names.

use std::fmt::Write;

use replicas::Counts;

/// Appends everything in OpenMetrics' text format, without the closing line.
pub(crate) fn encode(counts: Counts, text: &mut String) {
    // Writing to a string cannot fail.
    let written = write(counts, text);
    debug_assert!(written.is_ok());
}

fn write(counts: Counts, text: &mut String) -> std::fmt::Result {
    let mut metric = |name: &str, kind: &str, help: &str, value: u64| {
        let suffix = if kind == "counter" { "_total" } else { "" };
        writeln!(text, "# HELP forespeak_replicas_{name} {help}.")?;
        writeln!(text, "# TYPE forespeak_replicas_{name} {kind}")?;
        writeln!(text, "forespeak_replicas_{name}{suffix} {value}")
    };
    metric(
        "connected",
        "gauge",
        "Whether the last exchange with other gateways went well",
        u64::from(counts.is_connected),
    )?;
    metric(
        "others",
        "gauge",
        "Other gateways that are heard",
        counts.others as u64,
    )?;
    metric("turns", "counter", "Exchanges that went well", counts.turns)?;
    metric(
        "turns_failed",
        "counter",
        "Exchanges that did not",
        counts.turns_failed,
    )?;
    metric(
        "rejected",
        "counter",
        "Messages that were forged, foreign or unreadable",
        counts.rejected,
    )?;
    metric(
        "prefixes_told",
        "counter",
        "Prompts told to other gateways",
        counts.prefixes_told,
    )?;
    metric(
        "prefixes_heard",
        "counter",
        "Prompts that other gateways told of",
        counts.prefixes_heard,
    )
}
