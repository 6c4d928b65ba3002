//! Completes a prompt greedily, without an engine, and says what it cost.
//!
//! `cargo run --release -p forespeak-model --example complete -- MODEL "Once upon a time" 64`

#![allow(clippy::print_stdout, reason = "a command-line program")]

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use forespeak_model::{
    BLOCK_TOKENS, Batch, Compute, KvType, LoadOptions, Logits, Model, ModelSource, Specials, Tier,
    Workspace,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("give a model's path")?;
    let prompt = arguments.next().unwrap_or_default();
    let length: usize = arguments.next().map_or(Ok(32), |text| text.parse())?;
    let threads = std::thread::available_parallelism()?.get();
    let options = LoadOptions {
        quantize: None,
        chat_template: None,
        compute: Arc::new(Compute::new(Tier::detect(), threads)),
        progress: &|_| {},
    };
    let start = Instant::now();
    let loaded = Model::load(&ModelSource::Path(PathBuf::from(path)), &options)?;
    println!(
        "loaded in {:?}: {:?}, {} bytes of weights, {}",
        start.elapsed(),
        loaded.config().architecture,
        loaded.model.weight_bytes(),
        resident()
    );
    let (model, tokenizer) = (&loaded.model, &loaded.tokenizer);
    let mut tokens = tokenizer.encode(&prompt, Specials::PARSE_AND_ADD)?;
    println!("prompt: {tokens:?}");
    let blocks = (tokens.len() + length).div_ceil(BLOCK_TOKENS);
    let table: Vec<u32> = (0..u32::try_from(blocks)?).collect();
    let mut cache = model.new_cache(blocks, KvType::F16)?;
    let (mut workspace, mut logits) = (Workspace::default(), Logits::default());
    let mut batch = Batch::default();
    let mut done = 0;
    let start = Instant::now();
    let mut first = start.elapsed();
    for _ in 0..length {
        batch.clear();
        let rows = batch.push(&tokens[done..], done, &table);
        batch.want(rows.end - 1);
        model.forward(&batch, &mut cache, &mut workspace, &mut logits)?;
        if done == 0 {
            first = start.elapsed();
        }
        done = tokens.len();
        let best = logits
            .row(0)
            .iter()
            .enumerate()
            .max_by(|a, b| a.1.total_cmp(b.1));
        tokens.push(u32::try_from(best.map_or(0, |(id, _)| id))?);
    }
    let rest = start.elapsed() - first;
    let per_second = (length.saturating_sub(1)) as f64 / rest.as_secs_f64();
    println!("{}", tokenizer.decode(&tokens, false));
    println!(
        "first token after {first:?}, then {per_second:.1} tokens/s, {}",
        resident()
    );
    Ok(())
}

/// What the system says about this process's memory.
fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status
        .lines()
        .filter(|line| line.starts_with("VmHWM") || line.starts_with("VmRSS"));
    let lines: Vec<String> = lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    lines.join(", ")
}
