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
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use arena::{Arena, Slice, Until};
use options::{Options, Policy};
use pair::Pair;
use report::{CellReport, MixReport};
use texts::{Texts, Workload};

type Failure = Box<dyn Error>;

/// How long residents have been at a text when others shift to it.
const RESIDENCE: f64 = 10.0;

fn main() -> Result<(), Failure> {
    let options = Options::read(std::env::args().skip(1))?;
    let pair = Pair::load(&options)?;
    let texts = Arc::new(Texts::new(&pair)?);
    let bench = Bench {
        options,
        pair,
        texts,
    };
    for &streams in &bench.options.streams {
        for &workload in &bench.options.workloads {
            match workload {
                Workload::Mix => bench.mix(streams)?,
                steady => bench.cell(steady, streams)?,
            }
        }
    }
    Ok(())
}

struct Bench {
    options: Options,
    pair: Pair,
    texts: Arc<Texts>,
}

impl Bench {
    /// One kind of text, all policies in turns. Engines that do the same are up to 4 % apart, by where their memory happens to be:
    /// with several of each policy that evens out.
    fn cell(&self, workload: Workload, streams: usize) -> Result<(), Failure> {
        let mut arenas = self.arenas(self.options.engines, streams)?;
        let turn = self.warm_up(&mut arenas, workload, streams)?;
        let warm = arenas.first().map_or(0, Arena::said);
        let mut sums = vec![Slice::default(); arenas.len()];
        for round in 0..self.options.rounds {
            let until = Until::Said(warm + turn * (round as u64 + 1));
            for index in order(round, arenas.len()) {
                if let (Some(arena), Some(sum)) = (arenas.get_mut(index), sums.get_mut(index)) {
                    sum.add(&arena.run(workload, until)?);
                }
            }
        }
        let report = CellReport::new(&self.options, &self.pair, workload, streams, &sums);
        println!("{}", report.line());
        report.keep(&self.options)
    }

    /// Lets everybody say what the first one says in the time of a warm-up; how many tokens that one says in a slice.
    fn warm_up(
        &self,
        arenas: &mut [Arena],
        workload: Workload,
        streams: usize,
    ) -> Result<u64, Failure> {
        let Some((first, others)) = arenas.split_first_mut() else {
            return Ok(1);
        };
        let slice = first.run(workload, Until::Decoding(self.options.warm_up))?;
        for arena in others {
            arena.run(workload, Until::Said(first.said()))?;
        }
        Ok(((slice.rate() * self.options.slice) as u64).max(streams as u64))
    }

    /// Texts that shift. Every policy runs through all of them, in turns with the others: what a controller has for a clock
    /// stands still while it is not its turn.
    fn mix(&self, streams: usize) -> Result<(), Failure> {
        let mut arenas = self.arenas(1, streams)?;
        let mut courses = vec![Vec::new(); arenas.len()];
        let windows = (self.options.phase_seconds / report::WINDOW).round() as usize;
        for window in 0..self.options.phases * windows {
            let phase = window / windows;
            let workload = Workload::SHIFTING[phase % Workload::SHIFTING.len()];
            if window % windows == 0 {
                self.shift(phase, workload, &mut arenas, streams)?;
            }
            for index in order(window, arenas.len()) {
                if let (Some(arena), Some(course)) = (arenas.get_mut(index), courses.get_mut(index))
                {
                    let slice = arena.run(workload, Until::Seconds(report::WINDOW))?;
                    course.push((window as f64 * report::WINDOW, workload, slice));
                }
            }
        }
        for (policy, course) in self.options.policies.iter().zip(&courses) {
            let report = MixReport::new(&self.options, &self.pair, policy, streams, course);
            println!("{}", report.line());
            report.keep(&self.options)?;
        }
        Ok(())
    }

    /// Everybody is asked for another kind of text from now on. Residents knew.
    fn shift(
        &self,
        phase: usize,
        workload: Workload,
        arenas: &mut [Arena],
        streams: usize,
    ) -> Result<(), Failure> {
        for (policy, arena) in self.options.policies.iter().zip(arenas) {
            if policy.resident {
                *arena = self.arena(policy, streams)?;
                arena.run(workload, Until::Decoding(RESIDENCE))?;
            }
            arena.begin(phase);
        }
        Ok(())
    }

    /// So many for each policy, next to each other.
    fn arenas(&self, engines: usize, streams: usize) -> Result<Vec<Arena>, Failure> {
        let policies = self.options.policies.iter();
        let mut arenas = policies
            .flat_map(|policy| std::iter::repeat_n(policy, engines))
            .map(|policy| self.arena(policy, streams))
            .collect::<Result<Vec<_>, _>>()?;
        if let (Some(first), Some(file)) = (arenas.first_mut(), &self.options.record) {
            first.record_into(file);
        }
        Ok(arenas)
    }

    fn arena(&self, policy: &Policy, streams: usize) -> Result<Arena, Failure> {
        Arena::start(&self.pair, policy, &self.texts, streams)
    }
}

/// Whose turn it is in a round, one after the other: another order every time. Who follows a neighbour that drafts finds the caches
/// full of other things and is 2 % slower for it, so nobody may follow the same one always.
fn order(round: usize, count: usize) -> Vec<usize> {
    let shuffled = |index: &usize| {
        let mut hasher = DefaultHasher::new();
        (round, index).hash(&mut hasher);
        hasher.finish()
    };
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_cached_key(shuffled);
    order
}
