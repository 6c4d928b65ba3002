//! Mock workers in a process of their own, for benches.
//!
//! ```text
//! cargo run --release -p forespeak-testkit --example mock_vllm -- --count 8 --kind a100-8b --scale 8 --faster 30
//! cargo run --release -p forespeak-testkit --example mock_vllm -- --constant --count 2
//! ```
//!
//! One line of JSON says where they listen; SIGTERM or the end of standard input ends them.
#![allow(clippy::print_stdout, reason = "the line that says where they listen")]

use std::error::Error;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use forespeak_testkit::mock_vllm::constant::{ConstantConfig, ConstantWorker};
use forespeak_testkit::mock_vllm::{MockConfig, MockVllm, Vocabulary};
use serde_json::{Value, json};
use simulator::spec::WorkerSpec;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
struct Options {
    /// How many workers
    #[arg(long, default_value_t = 1)]
    count: usize,
    /// The name of their model
    #[arg(long, default_value = "mock")]
    model: String,
    /// Kind of machine: a100-8b, h100-8b, h100-70b-tp4, l40s-8b
    #[arg(long, default_value = "a100-8b")]
    kind: String,
    /// Tokens that one token stands for
    #[arg(long, default_value_t = 1)]
    scale: u32,
    /// How much faster the clock goes
    #[arg(long, default_value_t = 1.0)]
    faster: f64,
    /// Tokens of KV cache, after scaling
    #[arg(long)]
    kv_tokens: Option<u64>,
    /// Tokens per block, after scaling
    #[arg(long, default_value_t = 16)]
    block_tokens: u32,
    /// Most tokens of prompt and answer together
    #[arg(long, default_value_t = 1_000_000)]
    max_model_len: u64,
    /// A GGUF file or Hugging Face folder with the tokenizer [default: four bytes a token]
    #[arg(long)]
    tokenizer: Option<PathBuf>,
    /// Publish KV events
    #[arg(long)]
    events: bool,
    /// Constant answers that cost next to nothing
    #[arg(long)]
    constant: bool,
    /// Chunks of a constant streamed answer
    #[arg(long, default_value_t = 32)]
    chunks: usize,
    /// Milliseconds before each of them
    #[arg(long, default_value_t = 2)]
    pause: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let mut constant = Vec::new();
    let mut mocks = Vec::new();
    let vocabulary = match &options.tokenizer {
        Some(path) => Vocabulary::load(path)?,
        None => Vocabulary::Words,
    };
    for _ in 0..options.count {
        if options.constant {
            constant.push(ConstantWorker::start(&ConstantConfig {
                model: options.model.clone(),
                chunks: options.chunks,
                pause: Duration::from_millis(options.pause),
                port: 0,
            })?);
        } else {
            mocks.push(MockVllm::start(mock(&options, &vocabulary)?).await?);
        }
    }
    let mut workers: Vec<Value> = constant
        .iter()
        .map(|worker| json!({"url": worker.url()}))
        .collect();
    workers.extend(mocks.iter().map(|mock| {
        let (events, replay) = mock.event_endpoints().unzip();
        json!({"url": mock.url(), "events": events, "replay": replay})
    }));
    println!("{}", json!({ "workers": workers }));
    let mut terminated = signal(SignalKind::terminate())?;
    let (parent_left, parent) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        drop(parent_left);
    });
    tokio::select! {
        _ = terminated.recv() => {}
        _ = parent => {}
    }
    Ok(())
}

fn mock(options: &Options, vocabulary: &Vocabulary) -> Result<MockConfig, Box<dyn Error>> {
    let spec = WorkerSpec::by_name(&options.kind)?.scaled(options.scale, options.faster);
    Ok(MockConfig {
        model: options.model.clone(),
        worker: WorkerSpec {
            block_tokens: options.block_tokens,
            kv_tokens: options.kv_tokens.unwrap_or(spec.kv_tokens),
            ..spec
        },
        vocabulary: vocabulary.clone(),
        max_model_len: options.max_model_len,
        publishes_events: options.events,
        ..MockConfig::default()
    })
}
