//! Every law on texts that were recorded, said again on machines that are made up: tokens per second against no
//! speculation. Arguments: a file of `speculation --record` (`tests/recorded/README.md`), and how many runs make a figure.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::error::Error;

use forespeak_speculation::LawSpec;
use forespeak_speculation::simulate::{Machine, Recorded, Telling};

const FIXED: [usize; 8] = [1, 2, 3, 4, 5, 6, 8, 12];

/// Plain steps in a run of one kind of text, and between two shifts.
const STEPS: f64 = 1_000.0;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("which file of recorded texts?")?;
    let runs = arguments.next().map_or(Ok(12), |runs| runs.parse())?;
    let text = std::fs::read_to_string(file)?;
    let kinds = kinds(&text);
    println!("| machine | texts | streams | goodput | best fixed | goodput/best |");
    println!("|---|---|---|---|---|---|");
    for (machine_name, machine) in machines() {
        for streams in [1, 4, 16] {
            let shift = STEPS * machine.step;
            let mut worlds: Vec<(&str, Recorded, f64)> = kinds
                .iter()
                .map(|(kind, texts)| (*kind, Recorded::steady(machine, texts, streams), shift))
                .collect();
            let all: Vec<_> = kinds.values().cloned().collect();
            let whole = shift * all.len() as f64;
            let shifting = Recorded::shifting(machine, all, shift, streams);
            worlds.push(("all in turns", shifting, whole));
            for (name, world, seconds) in worlds {
                let rate = |law| rate(&world, law, seconds, runs);
                let off = rate(LawSpec::Fixed(0));
                let goodput = rate(LawSpec::Goodput);
                let fixed = FIXED.map(|depth| (rate(LawSpec::Fixed(depth)), depth));
                let (best, depth) =
                    fixed.into_iter().fold(
                        (off, 0),
                        |best, next| if next.0 > best.0 { next } else { best },
                    );
                println!(
                    "| {machine_name} | {name} | {streams} | {:.3} | {:.3} at {depth} | {:.3} |",
                    goodput / off,
                    best / off,
                    goodput / best,
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

/// Means over runs with other luck that begin with other texts.
fn rate(world: &Recorded, law: LawSpec, seconds: f64, runs: u64) -> f64 {
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
    (1..=runs).map(run).sum::<f64>() / runs.max(1) as f64
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
