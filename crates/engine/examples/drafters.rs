//! What drafting is worth on the bundled pair: tokens per second with each drafter against none, on prose
//! that goes on (greedily, where small models soon repeat themselves, and with a temperature) and on a text
//! that is said again. All in one run, so that the ratios can be trusted even on a busy machine.
//!
//! `cargo run --release -p forespeak-engine --example drafters [streams] [rounds] [threads]`

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use forespeak_engine::{
    CpuExecutor, Drafters, Engine, EngineConfig, Executors, Generation, Priority, Request,
    Sampling, SpeculationConfig, Stepper,
};
use model::{
    Compute, KvType, LoadOptions, LoadedModel, Model, ModelSource, Specials, Tier, Tokenizer,
};

const BLOCKS: usize = 1024;
const ANSWER: usize = 160;
const STORY: usize = 500;
const WAYS: [(Drafters, &str); 6] = [
    (Drafters::Off, "goodput"),
    (Drafters::Ngram, "goodput"),
    (Drafters::Model, "goodput"),
    (Drafters::Auto, "goodput"),
    (Drafters::Auto, "threshold"),
    (Drafters::Auto, "fixed:4"),
];

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    let numbers: Result<Vec<usize>, _> = std::env::args().skip(1).map(|n| n.parse()).collect();
    let numbers = numbers?;
    let number = |place: usize, default| numbers.get(place).copied().unwrap_or(default);
    let (streams, rounds, threads) = (number(0, 1), number(1, 6), number(2, 2));

    let compute = Arc::new(Compute::new(Tier::detect(), threads));
    let (target, tokenizer, _) = load("forespeak-target.gguf", &compute)?.into_parts();
    let draft = load("forespeak-draft.gguf", &compute)?.model;
    let (target, draft) = (Arc::new(target), Arc::new(draft));
    let held_out = std::fs::read_to_string(file("heldout.txt"))?;
    let letters: Vec<char> = held_out.chars().collect();
    let stories: Vec<String> = letters.chunks_exact(STORY).map(String::from_iter).collect();

    println!("{streams} streams of {ANSWER} tokens, {rounds} rounds, {threads} threads");
    for (workload, temperature, prompt) in [
        (
            "prose",
            0.0,
            prose as fn(&Tokenizer, &str) -> Result<Vec<u32>, Failure>,
        ),
        ("prose, sampled", 0.8, prose),
        ("copying", 0.0, copying),
    ] {
        let mut engines = Vec::new();
        for (drafters, law) in WAYS {
            engines.push(start(&target, &draft, &tokenizer, drafters, law)?);
        }
        let mut seconds = [0.0; WAYS.len()];
        for round in 0..rounds {
            let prompts = (0..streams)
                .filter_map(|stream| stories.get((round * streams + stream) % stories.len().max(1)))
                .map(|story| prompt(&tokenizer, story))
                .collect::<Result<Vec<_>, _>>()?;
            // In turns: what else the machine does hits all of them alike.
            for (running, seconds) in engines.iter_mut().zip(&mut seconds) {
                *seconds += running.answer(&prompts, temperature)?;
            }
        }
        let off = seconds.first().copied().unwrap_or_default();
        for (((drafters, law), running), seconds) in WAYS.iter().zip(&engines).zip(seconds) {
            let metrics = running.engine.metrics();
            let tokens = metrics.generation_tokens() as f64;
            println!(
                "{workload:14} {:18} {:7.1} tokens/s {:5.2}x  accepted {:.2} of {} drafted",
                format!("{drafters} {law}"),
                tokens / seconds,
                off / seconds,
                metrics.accepted_tokens() as f64 / metrics.draft_tokens().max(1) as f64,
                metrics.draft_tokens(),
            );
        }
    }
    Ok(())
}

fn file(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models");
    PathBuf::from(folder).join(name)
}

fn load(name: &str, compute: &Arc<Compute>) -> Result<LoadedModel, Failure> {
    let options = LoadOptions {
        quantize: None,
        chat_template: None,
        compute: Arc::clone(compute),
        progress: &|_| {},
    };
    Ok(Model::load(&ModelSource::Path(file(name)), &options)?)
}

/// The beginning of a story.
fn prose(tokenizer: &Tokenizer, story: &str) -> Result<Vec<u32>, Failure> {
    let text: String = story.chars().take(120).collect();
    Ok(tokenizer.encode(&text, Specials::PARSE_AND_ADD)?)
}

/// A story twice, and once more begun: what follows is known.
fn copying(tokenizer: &Tokenizer, story: &str) -> Result<Vec<u32>, Failure> {
    let begun: String = story.chars().take(60).collect();
    let text = format!("{story}\n{story}\n{begun}");
    Ok(tokenizer.encode(&text, Specials::PARSE_AND_ADD)?)
}

struct Running {
    engine: Engine,
    stepper: Stepper,
}

fn start(
    target: &Arc<Model>,
    draft: &Arc<Model>,
    tokenizer: &Arc<Tokenizer>,
    drafters: Drafters,
    law: &str,
) -> Result<Running, Failure> {
    let executor = |model: &Arc<Model>| CpuExecutor::new(Arc::clone(model), BLOCKS, KvType::F16);
    let executors = Executors {
        target: Box::new(executor(target)?),
        draft: Some(Box::new(executor(draft)?)),
    };
    let config = EngineConfig {
        num_blocks: BLOCKS,
        max_model_len: target.config().context_length,
        enable_prefix_caching: false,
        speculation: SpeculationConfig {
            drafters,
            law: law.parse()?,
        },
        ..EngineConfig::default()
    };
    let (engine, stepper) = Engine::manual(config, executors, Arc::<Tokenizer>::clone(tokenizer))?;
    Ok(Running { engine, stepper })
}

impl Running {
    /// Answers all prompts together; the seconds it took.
    fn answer(&mut self, prompts: &[Vec<u32>], temperature: f32) -> Result<f64, Failure> {
        let began = Instant::now();
        let open: Result<Vec<Generation>, _> = prompts
            .iter()
            .enumerate()
            .map(|(stream, prompt)| {
                self.engine.submit(Request {
                    id: "example".into(),
                    prompt: prompt.clone(),
                    sampling: Sampling {
                        temperature,
                        seed: Some(stream as u64),
                        max_tokens: Some(ANSWER),
                        ignore_eos: true,
                        ..Sampling::default()
                    },
                    priority: Priority::Normal,
                    // Nobody may look up what another one was told.
                    cache_salt: Some(format!("{stream}").into()),
                })
            })
            .collect();
        let _open = open?;
        while self.stepper.step() {}
        Ok(began.elapsed().as_secs_f64())
    }
}
