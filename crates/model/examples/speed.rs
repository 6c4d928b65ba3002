//! Speed of the forward pass on one model file, measured as `scripts/bench/llama_cpp_speed.py` measures
//! llama.cpp: the same steps on random tokens, best of all repetitions. Prints one JSON object.
//!
//! `cargo run --release -p forespeak-model --example speed -- MODEL.gguf [--threads N] [--steps N] [--tier TIER]`

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forespeak_model::{
    BLOCK_TOKENS, Batch, Compute, KvCache, KvType, LoadOptions, Logits, Model, ModelSource, Tier,
    Workspace,
};

const CHUNK: usize = 512;
const DEPTH: usize = 2048;
const STREAMS: usize = 8;
const VERIFIED: usize = 4;
/// Positions that one sequence may reach here.
const ROOM: usize = 4096;

#[allow(clippy::print_stdout)] // Printing is what it is for.
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .ok_or("usage: speed MODEL.gguf [--threads N] [--steps N] [--tier TIER]")?;
    let (mut threads, mut steps, mut tier) = (2, 32, Tier::detect());
    while let (Some(flag), Some(value)) = (arguments.next(), arguments.next()) {
        match flag.as_str() {
            "--threads" => threads = value.parse()?,
            "--steps" => steps = value.parse()?,
            "--tier" => tier = Tier::from_str(&value).map_err(|error| error.to_string())?,
            other => return Err(format!("unknown flag {other}").into()),
        }
    }
    let options = LoadOptions {
        quantize: None,
        chat_template: None,
        compute: Arc::new(Compute::new(tier, threads)),
        progress: &|_| {},
    };
    let model = Model::load(&ModelSource::Path(PathBuf::from(path)), &options)?.model;
    let figures = Bench::new(&model)?.measure(steps)?;
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

/// One model, a cache with room for all streams, and buffers that are reused from step to step.
struct Bench<'a> {
    model: &'a Model,
    cache: KvCache,
    workspace: Workspace,
    logits: Logits,
    batch: Batch,
    next_token: u32,
}

impl<'a> Bench<'a> {
    fn new(model: &'a Model) -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            model,
            cache: model.new_cache(ROOM / BLOCK_TOKENS, KvType::F16)?,
            workspace: Workspace::default(),
            logits: Logits::default(),
            batch: Batch::default(),
            next_token: 1,
        })
    }

    fn measure(mut self, steps: usize) -> Result<BTreeMap<&'static str, f64>, Box<dyn Error>> {
        let mut figures = BTreeMap::new();
        for start in (0..DEPTH).step_by(CHUNK) {
            let time = self.step(&[(0, start, CHUNK)])?;
            if start == 0 {
                keep_best(&mut figures, "prefill_512", CHUNK, time);
            }
        }
        for position in 0..steps {
            let time = self.step(&[(0, DEPTH + position, 1)])?;
            keep_best(&mut figures, "decode_at_2048", 1, time);
        }
        let mut total = Duration::ZERO;
        let mut ratios = Vec::with_capacity(steps);
        for position in 0..steps {
            let one = self.step(&[(0, position, 1)])?;
            keep_best(&mut figures, "decode", 1, one);
            total += one;
            // In turns, so that both meet the same memory: its speed changes from second to second.
            let several = self.step(&[(0, position + 1, VERIFIED)])?;
            keep_best(&mut figures, "verify_4", 1, several);
            ratios.push(several.as_secs_f64() / one.as_secs_f64());
        }
        keep_best(&mut figures, "decode_mean", steps, total);
        ratios.sort_by(f64::total_cmp);
        figures.insert(
            "verify_4_over_decode",
            ratios.get(steps / 2).copied().unwrap_or_default(),
        );
        let time = self.step(&[(0, 0, CHUNK)])?;
        keep_best(&mut figures, "prefill_512", CHUNK, time);
        for position in 0..steps {
            let streams: Vec<_> = (0..STREAMS).map(|stream| (stream, position, 1)).collect();
            let time = self.step(&streams)?;
            keep_best(&mut figures, "decode_8_streams", STREAMS, time);
        }
        figures.insert("resident_bytes", resident_bytes()?);
        let kv_bytes = self.cache.blocks() * self.cache.shape().block_bytes();
        figures.insert("kv_bytes", kv_bytes as f64);
        Ok(figures)
    }

    /// Runs `(stream, position, rows)` spans in one step, with the last row's logits of each (all rows
    /// of a short span, as verifying drafts needs).
    fn step(&mut self, spans: &[(usize, usize, usize)]) -> Result<Duration, Box<dyn Error>> {
        let blocks_each =
            (ROOM / BLOCK_TOKENS) as u32 / if spans.len() > 1 { STREAMS as u32 } else { 1 };
        self.batch.clear();
        for &(stream, position, rows) in spans {
            let tokens: Vec<u32> = (0..rows).map(|_| self.random_token()).collect();
            let first_block = stream as u32 * blocks_each;
            let table: Vec<u32> = (first_block..first_block + blocks_each).collect();
            let rows = self.batch.push(&tokens, position, &table);
            let wanted = if rows.len() <= VERIFIED {
                rows
            } else {
                rows.end - 1..rows.end
            };
            wanted.for_each(|row| self.batch.want(row));
        }
        let start = Instant::now();
        self.model.forward(
            &self.batch,
            &mut self.cache,
            &mut self.workspace,
            &mut self.logits,
        )?;
        Ok(start.elapsed())
    }

    fn random_token(&mut self) -> u32 {
        self.next_token = self
            .next_token
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        300 + (self.next_token >> 8) % (self.model.config().vocab_size as u32 - 300)
    }
}

fn keep_best(
    figures: &mut BTreeMap<&'static str, f64>,
    name: &'static str,
    tokens: usize,
    time: Duration,
) {
    let rate = tokens as f64 / time.as_secs_f64();
    let best = figures.entry(name).or_insert(rate);
    *best = best.max(rate);
}

/// Memory of this process that is in use now, from the kernel's own account.
fn resident_bytes() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .ok_or("no VmRSS")?;
    let kib: f64 = line
        .split_whitespace()
        .nth(1)
        .ok_or("empty VmRSS")?
        .parse()?;
    Ok(kib * 1024.0)
}
