//! Figures for people and for programs.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use crate::error::BenchError;
use crate::record::{Outcome, Record};
use crate::summary::{Spread, Summary};

/// Columns of the table.
const WIDTH: usize = 50;

/// The table of `vllm bench serve`, with the lines that it lacks.
pub fn table(summary: &Summary) -> String {
    let mut table = Table(String::new());
    table.title(" Serving Benchmark Result ", '=');
    table.count("Successful requests:", summary.completed as u64);
    table.count("Failed requests:", summary.failed as u64);
    for (outcome, count) in &summary.outcomes {
        if *outcome != Outcome::Ok {
            table.count(&format!("  {}:", name(*outcome)), *count as u64);
        }
    }
    table.figure("Benchmark duration (s):", summary.duration);
    table.count("Total input tokens:", summary.input_tokens);
    table.count("Total generated tokens:", summary.output_tokens);
    table.figure("Cached input tokens (%):", summary.cached_share * 100.0);
    table.figure("Request throughput (req/s):", summary.requests_per_second);
    table.figure(
        "Output token throughput (tok/s):",
        summary.output_tokens_per_second,
    );
    let all = summary.input_tokens + summary.output_tokens;
    table.figure(
        "Total token throughput (tok/s):",
        all as f64 / summary.duration.max(f64::EPSILON),
    );
    table.figure("Tokens per chunk:", summary.tokens_per_chunk);
    table.spread("Time to First Token", "TTFT", &summary.ttft_ms);
    table.spread(
        "TTFT from the scheduled send",
        "TTFT",
        &summary.ttft_from_due_ms,
    );
    table.spread(
        "Time per Output Token (excl. 1st token)",
        "TPOT",
        &summary.tpot_ms,
    );
    table.spread("Inter-token Latency (per chunk)", "ITL", &summary.itl_ms);
    table.spread("End-to-end Latency", "E2EL", &summary.e2e_ms);
    table.spread(
        "E2EL from the scheduled send",
        "E2EL",
        &summary.e2e_from_due_ms,
    );
    table.title("", '=');
    table.0
}

/// An outcome's name, as JSON has it.
fn name(outcome: Outcome) -> String {
    serde_json::to_value(outcome)
        .ok()
        .and_then(|name| Some(name.as_str()?.to_owned()))
        .unwrap_or_default()
}

struct Table(String);

impl Table {
    fn title(&mut self, title: &str, fill: char) {
        let rest = WIDTH.saturating_sub(title.len());
        let left = rest / 2;
        self.0.extend(std::iter::repeat_n(fill, left));
        self.0.push_str(title);
        self.0.extend(std::iter::repeat_n(fill, rest - left));
        self.0.push('\n');
    }

    fn count(&mut self, name: &str, count: u64) {
        let _ = writeln!(self.0, "{name:<40} {count:<10}");
    }

    fn figure(&mut self, name: &str, figure: f64) {
        let _ = writeln!(self.0, "{name:<40} {figure:<10.2}");
    }

    fn spread(&mut self, title: &str, unit: &str, spread: &Spread) {
        self.title(title, '-');
        for (name, figure) in [
            ("Mean", spread.mean),
            ("Median", spread.median),
            ("P95", spread.p95),
            ("P99", spread.p99),
        ] {
            self.figure(&format!("{name} {unit} (ms):"), figure);
        }
    }
}

/// Writes the figures as one JSON object.
///
/// # Errors
/// If the file cannot be written.
pub fn write_json(path: &Path, summary: &Summary) -> Result<(), BenchError> {
    let text = serde_json::to_string_pretty(summary).unwrap_or_default();
    std::fs::write(path, text + "\n").map_err(|source| file(path, source))
}

/// Writes one JSON object per request.
///
/// # Errors
/// If the file cannot be written.
pub fn write_jsonl(path: &Path, records: &[Record]) -> Result<(), BenchError> {
    let write = || -> std::io::Result<()> {
        let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
        for record in records {
            serde_json::to_writer(&mut out, record)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    };
    write().map_err(|source| file(path, source))
}

fn file(path: &Path, source: std::io::Error) -> BenchError {
    BenchError::File {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_table_has_the_lines_that_tools_look_for() {
        let table = table(&Summary::of(&[], Duration::from_secs(1)));
        for line in [
            "============ Serving Benchmark Result ============",
            "Successful requests:                     0",
            "Mean TTFT (ms):                          0.00",
            "---------------Time to First Token----------------",
            "P99 E2EL (ms):                           0.00",
        ] {
            assert!(table.contains(line), "{line}\n{table}");
        }
    }
}
