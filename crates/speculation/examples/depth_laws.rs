//! Every law in every simulated cell: tokens per second against no speculation, how often the depth changed,
//! and what planning a step took. Arguments: a part of the worlds' names, and a seed.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use forespeak_speculation::LawSpec;
use forespeak_speculation::simulate::{Machine, Run, Text, World};

const SECONDS: f64 = 120.0;
const FIXED: [usize; 7] = [1, 2, 3, 4, 6, 8, 12];

fn main() {
    println!(
        "| world | streams | goodput | best fixed | goodput/best | threshold | depth | changes/min | probes | microseconds |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let threshold = LawSpec::Threshold(std::time::Duration::from_secs(10));
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let seed = std::env::args().nth(2).and_then(|s| s.parse().ok());
    for (name, make) in worlds()
        .into_iter()
        .filter(|(name, _)| name.contains(&wanted))
    {
        for streams in [1, 4, 16] {
            let mut world = make(streams);
            world.seed = seed.unwrap_or(world.seed);
            let off = world.run(LawSpec::Fixed(0), SECONDS).tokens_per_second();
            let ratio = |run: &Run| run.tokens_per_second() / off;
            let started = Instant::now();
            let goodput = world.run(LawSpec::Goodput, SECONDS);
            let steps = goodput.sights.len() as f64;
            let micros = started.elapsed().as_secs_f64() * 1e6 / steps;
            let (best, depth) = FIXED
                .iter()
                .map(|&depth| (ratio(&world.run(LawSpec::Fixed(depth), SECONDS)), depth))
                .fold(
                    (1.0, 0),
                    |best, next| if next.0 > best.0 { next } else { best },
                );
            let baseline = world.run(threshold, SECONDS);
            let probes = goodput.sights.iter().filter(|sight| sight.probe).count();
            println!(
                "| {name} | {streams} | {:.3} | {best:.3} at {depth} | {:.3} | {:.3} | {:.1} | {:.0} | {:.1} % | {micros:.0} |",
                ratio(&goodput),
                ratio(&goodput) / best,
                ratio(&baseline),
                goodput.depth_between(0.0, SECONDS),
                goodput.changes() as f64 * 60.0 / SECONDS,
                100.0 * probes as f64 / steps,
            );
        }
    }
}

type Make = Box<dyn Fn(usize) -> World>;

fn worlds() -> Vec<(String, Make)> {
    let machines = [
        ("cpu", Machine::CPU),
        ("busy cpu", Machine::BUSY_CPU),
        ("vllm-cpu", Machine::VLLM_CPU),
        ("steep", Machine::STEEP),
    ];
    let texts = [
        ("prose", Text::PROSE),
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
            Box::new(move |n| World::shifting(machine, &all, 20.0, n)),
        ));
        let bursty = format!("{machine_name}, bursts of 3 s");
        worlds.push((
            bursty,
            Box::new(move |n| World::shifting(machine, &all, 3.0, n)),
        ));
    }
    worlds
}
