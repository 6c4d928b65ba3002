//! What was measured, as a line to read and a line to keep.

use std::io::Write;

use serde_json::{Value, json};

use crate::Failure;
use crate::arena::Slice;
use crate::options::{Options, Policy};
use crate::pair::Pair;
use crate::texts::Workload;

/// Seconds between two points of a mix's course.
pub(crate) const WINDOW: f64 = 0.25;

/// All policies on one kind of text.
pub(crate) struct CellReport {
    line: String,
    json: Value,
}

impl CellReport {
    pub(crate) fn new(
        options: &Options,
        pair: &Pair,
        workload: Workload,
        streams: usize,
        engines: &[Slice],
    ) -> Self {
        let each: Vec<&[Slice]> = engines.chunks(options.engines).collect();
        let sums: Vec<Slice> = each.iter().map(|of_one| sum(*of_one)).collect();
        let off = options
            .policies
            .iter()
            .zip(&sums)
            .find(|(policy, _)| policy.name == "off")
            .map_or(f64::NAN, |(_, sum)| sum.rate());
        let mut line = format!("{:9} {streams:2} streams:", workload.name());
        let mut policies = serde_json::Map::new();
        for ((policy, sum), each) in options.policies.iter().zip(&sums).zip(each) {
            let rate = sum.rate();
            line.push_str(&format!(
                "  {} {rate:.0} ({:.2}x, depth {:.1}, {:.2})",
                policy.name,
                rate / off,
                sum.depth(streams),
                sum.acceptance().unwrap_or(0.0),
            ));
            let mut kept = of_slice(sum, streams);
            kept["each"] = each.iter().map(Slice::rate).collect();
            policies.insert(policy.name.clone(), kept);
        }
        let json = json!({
            "model": pair.name, "workload": workload.name(), "streams": streams, "policies": policies,
        });
        Self { line, json }
    }

    pub(crate) fn line(&self) -> &str {
        &self.line
    }

    pub(crate) fn keep(&self, options: &Options) -> Result<(), Failure> {
        keep(&self.json, options)
    }
}

/// One policy through a shifting mix.
pub(crate) struct MixReport {
    line: String,
    json: Value,
}

impl MixReport {
    pub(crate) fn new(
        options: &Options,
        pair: &Pair,
        policy: &Policy,
        streams: usize,
        windows: &[(f64, Workload, Slice)],
    ) -> Self {
        let sum = sum(windows.iter().map(|(_, _, slice)| slice));
        let course: Vec<Value> = windows
            .iter()
            .map(|(began, workload, slice)| {
                json!([
                    began,
                    workload.name(),
                    slice.rate(),
                    slice.depth(streams),
                    slice.acceptance(),
                ])
            })
            .collect();
        let line = format!(
            "mix       {streams:2} streams: {} {:.0} (depth {:.1}, {:.2})",
            policy.name,
            sum.rate(),
            sum.depth(streams),
            sum.acceptance().unwrap_or(0.0),
        );
        let json = json!({
            "model": pair.name, "workload": "mix", "streams": streams, "policy": policy.name,
            "phase": options.phase_seconds, "sum": of_slice(&sum, streams), "course": course,
        });
        Self { line, json }
    }

    pub(crate) fn line(&self) -> &str {
        &self.line
    }

    pub(crate) fn keep(&self, options: &Options) -> Result<(), Failure> {
        keep(&self.json, options)
    }
}

fn sum<'a>(slices: impl IntoIterator<Item = &'a Slice>) -> Slice {
    let mut sum = Slice::default();
    for slice in slices {
        sum.add(slice);
    }
    sum
}

fn of_slice(slice: &Slice, streams: usize) -> Value {
    json!({
        "rate": slice.rate(), "whole_seconds": slice.whole_seconds, "whole_tokens": slice.whole_tokens,
        "seconds": slice.seconds, "tokens": slice.tokens, "steps": slice.steps,
        "drafted": slice.drafted, "accepted": slice.accepted, "depth": slice.depth(streams),
    })
}

fn keep(line: &Value, options: &Options) -> Result<(), Failure> {
    let Some(path) = &options.json else {
        return Ok(());
    };
    let mut file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(path)?;
    writeln!(file, "{line}")?;
    Ok(())
}
