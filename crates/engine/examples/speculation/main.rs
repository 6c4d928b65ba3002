//! What speculation is worth: tokens per second under each policy, on texts that are easy, hard and impossible to
//! guess. All policies take turns in short slices of one run, so what else the machine does hits all of them alike
//! and their ratios can be trusted. Each has an engine of its own, which learns only in its own slices. A slice of a steady
//! text is a number of tokens: all policies say the same, and none is lucky to get to an easier page sooner.
//!
//! `cargo run --release -p forespeak-engine --example speculation -- --help`; `make bench-speculation` makes the
//! tables and the plot out of it.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "printing is what it is for"
)]

mod arena;
mod options;
mod pair;
mod report;
mod texts;

use std::error::Error;
use std::sync::Arc;

use arena::{Arena, Slice, Until};
use options::Options;
use pair::Pair;
use report::{CellReport, MixReport};
use texts::{Texts, Workload};

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    let options = Options::read(std::env::args().skip(1))?;
    let pair = Pair::load(&options)?;
    let texts = Arc::new(Texts::new(&pair)?);
    for &streams in &options.streams {
        for &workload in &options.workloads {
            match workload {
                Workload::Mix => mix(&options, &pair, &texts, streams)?,
                steady => cell(&options, &pair, &texts, steady, streams)?,
            }
        }
    }
    Ok(())
}

/// One kind of text, all policies in turns.
fn cell(
    options: &Options,
    pair: &Pair,
    texts: &Arc<Texts>,
    workload: Workload,
    streams: usize,
) -> Result<(), Failure> {
    let mut arenas = arenas(options, pair, texts, streams)?;
    let turn = warm_up(options, &mut arenas, workload, streams)?;
    let warm = arenas.first().map_or(0, Arena::said);
    let mut sums = vec![Slice::default(); arenas.len()];
    for round in 0..options.rounds {
        let until = Until::Said(warm + turn * (round as u64 + 1));
        for place in 0..arenas.len() {
            // Every round begins with another one: nobody always follows the same neighbour.
            let index = (round + place) % arenas.len();
            if let (Some(arena), Some(sum)) = (arenas.get_mut(index), sums.get_mut(index)) {
                sum.add(&arena.run(workload, until)?);
            }
        }
    }
    let report = CellReport::new(options, pair, workload, streams, &sums);
    println!("{}", report.line());
    report.keep(options)
}

/// Lets everybody say what the first one says in the time of a warm-up; how many tokens that one says in a slice.
fn warm_up(
    options: &Options,
    arenas: &mut [Arena],
    workload: Workload,
    streams: usize,
) -> Result<u64, Failure> {
    let Some((first, others)) = arenas.split_first_mut() else {
        return Ok(1);
    };
    let slice = first.run(workload, Until::Decoding(options.warm_up))?;
    for arena in others {
        arena.run(workload, Until::Said(first.said()))?;
    }
    Ok(((slice.rate() * options.slice) as u64).max(streams as u64))
}

/// Texts that shift. Every policy runs through all of them, in turns with the others: what a controller has for a clock
/// stands still while it is not its turn.
fn mix(options: &Options, pair: &Pair, texts: &Arc<Texts>, streams: usize) -> Result<(), Failure> {
    let mut arenas = arenas(options, pair, texts, streams)?;
    let mut courses = vec![Vec::new(); arenas.len()];
    let windows = (options.phase_seconds / report::WINDOW).round() as usize;
    for window in 0..options.phases * windows {
        let workload = Workload::SHIFTING[window / windows % Workload::SHIFTING.len()];
        for turn in 0..arenas.len() {
            let index = (window + turn) % arenas.len();
            let (Some(arena), Some(course)) = (arenas.get_mut(index), courses.get_mut(index))
            else {
                continue;
            };
            if window % windows == 0 {
                arena.drop_streams();
            }
            let slice = arena.run(workload, Until::Seconds(report::WINDOW))?;
            course.push((window as f64 * report::WINDOW, workload, slice));
        }
    }
    for (policy, course) in options.policies.iter().zip(&courses) {
        let report = MixReport::new(options, pair, policy, streams, course);
        println!("{}", report.line());
        report.keep(options)?;
    }
    Ok(())
}

fn arenas(
    options: &Options,
    pair: &Pair,
    texts: &Arc<Texts>,
    streams: usize,
) -> Result<Vec<Arena>, Failure> {
    options
        .policies
        .iter()
        .enumerate()
        .map(|(place, policy)| {
            let record = options.record.as_ref().filter(|_| place == 0);
            Arena::start(pair, policy, texts, streams, record)
        })
        .collect()
}
