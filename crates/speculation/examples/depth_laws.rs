//! Every law in every simulated cell: tokens per second against no speculation, how often the depth changed,
//! and what planning a step took. Arguments: a part of the worlds' names, and a seed.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use forespeak_speculation::LawSpec;
use forespeak_speculation::simulate::{Machine, Run, Text, World};

/// Steps of one stream in a run, and runs with other luck: where steps are short a run is short too, and what is learnt
/// at its beginning is a part of it.
const STEPS: f64 = 6_000.0;
const RUNS: u64 = 4;
const FIXED: [usize; 7] = [1, 2, 3, 4, 6, 8, 12];

fn main() {
    println!(
        "| world | streams | goodput | best fixed | goodput/best | threshold | depth | changes/min | probes | microseconds |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let threshold = LawSpec::Threshold(std::time::Duration::from_secs(10));
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let seed = std::env::args().nth(2).and_then(|s| s.parse().ok());
    let seeds: Vec<u64> = seed.map_or_else(|| (1..=RUNS).collect(), |seed| vec![seed]);
    for (name, make) in worlds()
        .into_iter()
        .filter(|(name, _)| name.contains(&wanted))
    {
        for streams in [1, 4, 16] {
            let seconds = STEPS * make(streams).machine.step;
            let runs = |law| -> Vec<Run> {
                let world = |seed| World {
                    seed,
                    ..make(streams)
                };
                seeds.iter().map(|&s| world(s).run(law, seconds)).collect()
            };
            let off = rate(&runs(LawSpec::Fixed(0)));
            let started = Instant::now();
            let goodput = runs(LawSpec::Goodput);
            let steps: usize = goodput.iter().map(|run| run.sights.len()).sum();
            let micros = started.elapsed().as_secs_f64() * 1e6 / steps as f64;
            let (best, depth) = FIXED
                .iter()
                .map(|&depth| (rate(&runs(LawSpec::Fixed(depth))) / off, depth))
                .fold(
                    (1.0, 0),
                    |best, next| if next.0 > best.0 { next } else { best },
                );
            let baseline = rate(&runs(threshold)) / off;
            let probes = goodput.iter().flat_map(|run| &run.sights);
            let probes = probes.filter(|sight| sight.probe).count();
            let ratio = rate(&goodput) / off;
            println!(
                "| {name} | {streams} | {ratio:.3} | {best:.3} at {depth} | {:.3} | {baseline:.3} | {:.1} | {:.0} | {:.1} % | {micros:.1} |",
                ratio / best,
                mean(&goodput, |run| run.depth_between(0.0, seconds)),
                mean(&goodput, |run| run.changes() as f64) * 60.0 / seconds,
                100.0 * probes as f64 / steps as f64,
            );
        }
    }
}

fn rate(runs: &[Run]) -> f64 {
    mean(runs, Run::tokens_per_second)
}

fn mean(runs: &[Run], of: impl Fn(&Run) -> f64) -> f64 {
    runs.iter().map(of).sum::<f64>() / runs.len().max(1) as f64
}

type Make = Box<dyn Fn(usize) -> World>;

fn worlds() -> Vec<(String, Make)> {
    let machines = [
        ("cpu", Machine::CPU),
        ("busy cpu", Machine::BUSY_CPU),
        ("vllm-cpu", Machine::VLLM_CPU),
        ("steep", Machine::STEEP),
        ("small model", Machine::SMALL_MODEL),
        ("spells", Machine::SMALL_MODEL_IN_SPELLS),
    ];
    let texts = [
        ("prose", Text::PROSE),
        ("uneven prose", Text::UNEVEN_PROSE),
        ("answers", Text::ANSWERS),
        ("copying", Text::COPYING),
        ("random", Text::RANDOM),
        ("noisy drafter", Text::NOISY_DRAFTER),
        ("copying, no model", Text::COPYING.without_model()),
        ("random, no model", Text::RANDOM.without_model()),
    ];
    let all = [Text::PROSE, Text::RANDOM, Text::COPYING, Text::ANSWERS];
    let mut worlds: Vec<(String, Make)> = Vec::new();
    for (machine_name, machine) in machines {
        for (text_name, text) in texts {
            let name = format!("{machine_name}, {text_name}");
            worlds.push((name, Box::new(move |n| World::steady(machine, text, n))));
        }
        let mixed = format!("{machine_name}, mixed streams");
        worlds.push((mixed, Box::new(move |n| World::mixed(machine, &all, n))));
        let shifting = format!("{machine_name}, shifting");
        worlds.push((
            shifting,
            Box::new(move |n| World::shifting(machine, &all, 1_000.0 * machine.step, n)),
        ));
        let bursty = format!("{machine_name}, bursts");
        worlds.push((
            bursty,
            Box::new(move |n| World::shifting(machine, &all, 150.0 * machine.step, n)),
        ));
    }
    worlds
}
