//! Replays a trace, or chats made up on the spot, under every policy and prints a table.
//!
//! ```text
//! cargo run --release -p forespeak-simulator --example policies -- TRACE.jsonl --workers 8 --speed 0.6,0.8
//! cargo run --release -p forespeak-simulator --example policies -- chats --speed 1,2,4
//! ```
//!
//! Options: `--kind a100-8b|h100-8b|h100-70b-tp4|l40s-8b`, `--policies fit,lmetric`, `--events MILLISECONDS` (workers
//! announce their cache, that late), `--seeds N` (figures are means over N runs). For chats, the speed is the
//! number of chats that begin per second.
#![allow(clippy::print_stdout, reason = "a table is what it is for")]

use std::error::Error;
use std::time::Duration;

use forespeak_simulator::report::Report;
use forespeak_simulator::spec::WorkerSpec;
use forespeak_simulator::workload::{Chats, Workload};
use forespeak_simulator::{FleetConfig, mooncake, simulate};
use routing::Policy;

struct Options {
    source: String,
    workers: u16,
    speeds: Vec<f64>,
    kind: WorkerSpec,
    policies: Vec<Policy>,
    event_delay: Option<Duration>,
    seeds: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = parse(std::env::args().skip(1))?;
    println!(
        "{:>6} {:>12} | {:>7} {:>7} {:>7} {:>7} {:>7} | {:>7} {:>7} | {:>7} {:>7} {:>6} {:>7} {:>9} {:>8} {:>5} {:>5}",
        "speed",
        "policy",
        "ttft",
        "p50",
        "p95",
        "p99",
        "vs rr",
        "e2e p50",
        "p95",
        "req/s",
        "carried",
        "hit %",
        "known %",
        "evicted",
        "preempt",
        "hot",
        "busy"
    );
    for speed in &options.speeds {
        let workload = load(&options.source, *speed)?;
        let mut round_robin = None;
        for policy in &options.policies {
            let report = mean_of_seeds(&options, *policy, &workload);
            let base = *round_robin.get_or_insert(report.ttft.p95);
            println!(
                "{speed:>6} {policy:>12} | {:>7.3} {:>7.3} {:>7.3} {:>7.3} {:>6.0}% | {:>7.2} {:>7.2} | {:>7.2} {:>6.1}% {:>6.1} {:>7.1} {:>9} {:>8} {:>5.2} {:>4.0}%",
                report.ttft.mean,
                report.ttft.p50,
                report.ttft.p95,
                report.ttft.p99,
                (report.ttft.p95 / base - 1.0) * 100.0,
                report.end_to_end.p50,
                report.end_to_end.p95,
                report.requests_per_second,
                report.carried * 100.0,
                report.hit_share * 100.0,
                report.predicted_within_a_block * 100.0,
                report.evictions,
                report.preemptions,
                report.hot_spot,
                report.busy * 100.0
            );
        }
    }
    Ok(())
}

fn load(source: &str, speed: f64) -> Result<Workload, Box<dyn Error>> {
    if source == "chats" {
        return Ok(Chats {
            chats_per_second: speed,
            ..Chats::default()
        }
        .generate());
    }
    let text = std::fs::read_to_string(source)?;
    Ok(mooncake::workload(source, &mooncake::parse(&text)?).faster(speed))
}

fn mean_of_seeds(options: &Options, policy: Policy, workload: &Workload) -> Report {
    let reports: Vec<Report> = (1..=options.seeds)
        .map(|seed| {
            let config = FleetConfig {
                event_delay: options.event_delay,
                seed,
                ..FleetConfig::new(options.workers, options.kind, policy)
            };
            simulate(&config, workload)
        })
        .collect();
    Report::mean(&reports)
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, Box<dyn Error>> {
    let mut options = Options {
        source: words
            .next()
            .ok_or("say which trace to replay, or \"chats\"")?,
        workers: 8,
        speeds: vec![1.0],
        kind: WorkerSpec::a100_8b(),
        policies: Policy::ALL.to_vec(),
        event_delay: None,
        seeds: 1,
    };
    while let Some(name) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--workers" => options.workers = value.parse()?,
            "--speed" => {
                options.speeds = value.split(',').map(str::parse).collect::<Result<_, _>>()?
            }
            "--kind" => options.kind = WorkerSpec::by_name(&value)?,
            "--policies" => {
                options.policies = value.split(',').map(str::parse).collect::<Result<_, _>>()?
            }
            "--events" => options.event_delay = Some(Duration::from_millis(value.parse()?)),
            "--seeds" => options.seeds = value.parse::<u64>()?.max(1),
            _ => return Err(format!("there is no option {name}").into()),
        }
    }
    Ok(options)
}
