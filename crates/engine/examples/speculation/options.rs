//! What to measure, from the command line.

use std::fs::File;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use forespeak_engine::{Drafters, LawSpec, SpeculationConfig};

use crate::Failure;
use crate::texts::Workload;

const HELP: &str = "\
speculation [--target FILE --draft FILE|none] [--threads 2]
            [--workloads prose,questions,copying,sampled,random,mix] [--streams 1,4,16] [--policies off,fixed:1,...]
            [--drafters auto|model|ngram] [--rounds 120] [--slice 0.03] [--warm-up SECONDS] [--engines 1]
            [--phases 4] [--phase SECONDS] [--quick] [--json FILE] [--record FILE]
A policy is off, a law, or drafters/law, and +unseeded behind it leaves the requests' seeds out. +resident behind it makes
one of the mix that no shift surprises: each phase begins with an engine that has been at that text for 10 s.
Of each policy, --engines of them take turns in a cell, and count together: no two engines are equally fast.
Every cell is one line on standard output, and with --json one line of JSON added to FILE. --record adds what the first policy's
streams (not those of a resident) were told and said, a line for each answer: workload, tokens of the prompt, all tokens.";

/// A policy and its name in tables.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    pub(crate) name: String,
    pub(crate) config: SpeculationConfig,
    /// Whether requests bring a seed.
    pub(crate) seeded: bool,
    /// Whether it knows each phase of a mix before it begins: what others have settled at when they do as it does.
    pub(crate) resident: bool,
}

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) target: Option<PathBuf>,
    pub(crate) draft: Option<PathBuf>,
    pub(crate) has_draft: bool,
    pub(crate) threads: usize,
    pub(crate) workloads: Vec<Workload>,
    pub(crate) streams: Vec<usize>,
    pub(crate) policies: Vec<Policy>,
    pub(crate) rounds: usize,
    /// Seconds of the first policy's turn, whose tokens are everybody's turn. Engines that do exactly the same agree within 1 % if they take turns every 30 ms; with 300 ms
    /// they were up to 8 % apart, because the machine is another one by then.
    pub(crate) slice: f64,
    /// Seconds that the first policy decodes before anything counts.
    pub(crate) warm_up: f64,
    /// Engines of each policy in a cell.
    pub(crate) engines: usize,
    pub(crate) phases: usize,
    pub(crate) phase_seconds: f64,
    pub(crate) json: Option<PathBuf>,
    pub(crate) record: Option<Arc<File>>,
}

impl Options {
    pub(crate) fn read(arguments: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut options = Self {
            target: None,
            draft: None,
            has_draft: true,
            threads: 2,
            workloads: Workload::USUAL.to_vec(),
            streams: vec![1, 4, 16],
            policies: Vec::new(),
            rounds: 120,
            slice: 0.03,
            warm_up: 0.5,
            engines: 1,
            phases: 4,
            phase_seconds: 20.0,
            json: None,
            record: None,
        };
        let mut drafters = "auto".to_owned();
        let mut policies = "off,fixed:1,fixed:2,fixed:3,fixed:4,fixed:5,fixed:6,fixed:7,fixed:8,\
                            threshold,goodput"
            .to_owned();
        let mut arguments = arguments;
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
            match name.as_str() {
                "--target" => options.target = Some(value()?.into()),
                "--draft" => match value()?.as_str() {
                    "none" => options.has_draft = false,
                    path => options.draft = Some(path.into()),
                },
                "--threads" => options.threads = value()?.parse()?,
                "--workloads" => {
                    options.workloads = list(&value()?, |word| word.parse())?;
                }
                "--streams" => {
                    options.streams = list(&value()?, |word| Ok(word.parse()?))?;
                }
                "--policies" => policies = value()?,
                "--drafters" => drafters = value()?,
                "--rounds" => options.rounds = value()?.parse()?,
                "--slice" => options.slice = value()?.parse()?,
                "--warm-up" => options.warm_up = value()?.parse()?,
                "--engines" => options.engines = value()?.parse::<NonZeroUsize>()?.get(),
                "--phases" => options.phases = value()?.parse()?,
                "--phase" => options.phase_seconds = value()?.parse()?,
                "--json" => options.json = Some(value()?.into()),
                "--record" => {
                    let file = File::options().create(true).append(true).open(value()?)?;
                    options.record = Some(Arc::new(file));
                }
                "--quick" => {
                    options.rounds = 40;
                    options.warm_up = 0.3;
                    options.phase_seconds = 4.0;
                    policies = "off,fixed:1,fixed:2,fixed:4,fixed:6,fixed:8,goodput".to_owned();
                }
                "--help" => {
                    println!("{HELP}");
                    std::process::exit(0);
                }
                other => return Err(format!("{other} is no option\n{HELP}").into()),
            }
        }
        options.policies = list(&policies, |name| policy(name, &drafters))?;
        Ok(options)
    }
}

fn list<T>(words: &str, read: impl Fn(&str) -> Result<T, Failure>) -> Result<Vec<T>, Failure> {
    words.split(',').map(|word| read(word.trim())).collect()
}

/// `off`, a law, or `drafters/law`; with `+unseeded` if requests bring no seed, with `+resident` if no shift surprises it.
fn policy(name: &str, usual: &str) -> Result<Policy, Failure> {
    let mut parts = name.split('+');
    let way = parts.next().unwrap_or(name);
    let (mut seeded, mut resident) = (true, false);
    for part in parts {
        match part {
            "unseeded" => seeded = false,
            "resident" => resident = true,
            other => return Err(format!("+{other}: a policy has +unseeded and +resident").into()),
        }
    }
    let config = if way == "off" {
        SpeculationConfig::OFF
    } else {
        let (drafters, law) = way.split_once('/').unwrap_or((usual, way));
        SpeculationConfig {
            drafters: drafters.parse::<Drafters>()?,
            law: law.parse::<LawSpec>()?,
        }
    };
    Ok(Policy {
        name: name.to_owned(),
        config,
        seeded,
        resident,
    })
}
