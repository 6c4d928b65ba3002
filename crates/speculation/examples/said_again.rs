//! Every law on texts that were recorded, said again on machines that are made up: tokens per second against no
//! speculation. Arguments: a file of `speculation --record` (`tests/recorded/README.md`), how many runs make a figure, and how many
//! plain steps make a run. Learning counts, so short runs are further apart: the last column is the worst of them.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::error::Error;

use forespeak_speculation::LawSpec;
use forespeak_speculation::simulate::{Machine, Recorded, Telling};

const FIXED: [usize; 9] = [0, 1, 2, 3, 4, 5, 6, 8, 12];

/// Runs that make a figure, and plain steps in a run of one kind of text, or between two shifts, unless it is said.
const RUNS: u64 = 12;
const STEPS: f64 = 1_000.0;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("which file of recorded texts?")?;
    let runs = arguments.next().map_or(Ok(RUNS), |runs| runs.parse())?;
    let steps = arguments.next().map_or(Ok(STEPS), |steps| steps.parse())?;
    let text = std::fs::read_to_string(file)?;
    let kinds = kinds(&text);
    println!("| machine | texts | streams | goodput | best fixed | goodput/best | worst run |");
    println!("|---|---|---|---|---|---|---|");
    for (machine_name, machine) in machines() {
        for streams in [1, 4, 16] {
            let shift = steps * machine.step;
            let mut worlds: Vec<(&str, Recorded, f64)> = kinds
                .iter()
                .map(|(kind, texts)| (*kind, Recorded::steady(machine, texts, streams), shift))
                .collect();
            let all: Vec<_> = kinds.values().cloned().collect();
            let whole = shift * all.len() as f64;
            let shifting = Recorded::shifting(machine, all, shift, streams);
            worlds.push(("all in turns", shifting, whole));
            for (name, world, seconds) in worlds {
                let rates = |law| rates(&world, law, seconds, runs);
                let off = mean(&rates(LawSpec::Fixed(0)));
                let goodput = rates(LawSpec::Goodput);
                let fixed = FIXED.map(|depth| (depth, rates(LawSpec::Fixed(depth))));
                let best = fixed
                    .iter()
                    .max_by(|(_, a), (_, b)| mean(a).total_cmp(&mean(b)));
                let (depth, best) = best.ok_or("no depth")?;
                let by_run = goodput
                    .iter()
                    .zip(best)
                    .map(|(goodput, best)| goodput / best);
                println!(
                    "| {machine_name} | {name} | {streams} | {:.3} | {:.3} at {depth} | {:.3} | {:.3} |",
                    mean(&goodput) / off,
                    mean(best) / off,
                    mean(&goodput) / mean(best),
                    by_run.fold(f64::INFINITY, f64::min),
                );
            }
        }
    }
    Ok(())
}

/// By kind, each text once.
fn kinds(file: &str) -> BTreeMap<&str, Vec<Telling>> {
    let mut kinds: BTreeMap<&str, Vec<Telling>> = BTreeMap::new();
    for (kind, text) in file.lines().filter_map(Telling::read) {
        let texts = kinds.entry(kind).or_default();
        if texts.iter().all(|known| known.tokens != text.tokens) {
            texts.push(text);
        }
    }
    kinds
}

/// Tokens per second of runs with other luck that begin with other texts.
fn rates(world: &Recorded, law: LawSpec, seconds: f64, runs: u64) -> Vec<f64> {
    let run = |seed: u64| {
        let mut world = Recorded {
            seed,
            ..world.clone()
        };
        for texts in &mut world.kinds {
            let places = 5 * seed as usize % texts.len().max(1);
            texts.rotate_left(places);
        }
        world.run(law, seconds).tokens_per_second()
    };
    (1..=runs.max(1)).map(run).collect()
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len() as f64
}

fn machines() -> [(&'static str, Machine); 5] {
    let every_row = |row| Machine {
        free_rows: 1.0,
        row,
        ..Machine::LARGE_MODEL
    };
    [
        ("large model", Machine::LARGE_MODEL),
        ("in spells", Machine::LARGE_MODEL_IN_SPELLS),
        ("rows of 5 %", every_row(0.05)),
        ("rows of 8 %", every_row(0.08)),
        ("small model", Machine::SMALL_MODEL),
    ]
}
