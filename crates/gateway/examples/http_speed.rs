//! Eight concurrent streams through HTTP against the same eight handed to the engine directly, in turns
//! in one process on one engine. Prints one JSON object with tokens per second, best of the rounds.
//!
//! `cargo run --release -p forespeak-gateway --example http_speed -- MODEL.gguf [--threads N] [--rounds N]`

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use engine::{CpuExecutor, Engine, EngineConfig, Priority, Request, Sampling, Update};
use forespeak_gateway::tenants::Tenants;
use forespeak_gateway::{Gateway, ModelCodec, ServedModel, Server, ServerConfig, StopSwitch};
use model::{Compute, KvType, LoadOptions, Model, ModelSource, Tier};

const STREAMS: usize = 8;
const PROMPT_TOKENS: u32 = 16;
const ANSWER_TOKENS: usize = 128;
const BLOCKS: usize = 256;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[allow(clippy::print_stdout)] // Printing is what it is for.
fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .ok_or("usage: http_speed MODEL.gguf [--threads N] [--rounds N]")?;
    let (mut threads, mut rounds) = (2, 3);
    while let (Some(flag), Some(value)) = (arguments.next(), arguments.next()) {
        match flag.as_str() {
            "--threads" => threads = value.parse()?,
            "--rounds" => rounds = value.parse()?,
            other => return Err(format!("unknown flag {other}").into()),
        }
    }
    let (engine, model) = start(PathBuf::from(path), threads)?;
    let gateway = Gateway::new(model, engine.clone(), Tenants::of_a_worker());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let _inside = runtime.enter();
    let config = ServerConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        ..ServerConfig::default()
    };
    let server = Server::bind(config, Arc::new(gateway))?;
    let address = server.address();
    let stop = StopSwitch::new();
    let running = runtime.spawn(server.run(stop.clone()));

    let mut figures = BTreeMap::new();
    for round in 0..rounds {
        // A prompt of its own for every stream and round: nothing comes out of the prefix cache.
        let first = 1000 + round * 100;
        let direct = timed(|stream| generate(&engine, prompt(first + stream)))?;
        keep_best(&mut figures, "engine_8_streams", direct);
        let served = timed(|stream| request(address, &prompt(first + 50 + stream)))?;
        keep_best(&mut figures, "http_8_streams", served);
    }
    println!("{}", serde_json::to_string(&figures)?);
    stop.stop_now();
    Ok(runtime.block_on(running)?)
}

fn start(path: PathBuf, threads: usize) -> Outcome<(Arc<Engine>, ServedModel)> {
    let options = LoadOptions {
        quantize: None,
        chat_template: None,
        compute: Arc::new(Compute::new(Tier::detect(), threads)),
        progress: &|_| {},
    };
    let (model, tokenizer, template) =
        Model::load(&ModelSource::Path(path), &options)?.into_parts();
    let config = EngineConfig {
        num_blocks: BLOCKS,
        max_model_len: model.config().context_length,
        ..EngineConfig::default()
    };
    let served = ServedModel {
        revision: String::new(),
        names: vec!["model".to_owned()],
        max_model_len: config.max_model_len,
        codec: Arc::new(ModelCodec::new(Arc::clone(&tokenizer), template)),
    };
    let executor = CpuExecutor::new(Arc::new(model), BLOCKS, KvType::F16)?;
    let engine = Engine::start(config, Box::new(executor), tokenizer)?;
    Ok((Arc::new(engine), served))
}

fn prompt(first: u32) -> Vec<u32> {
    (0..PROMPT_TOKENS).map(|i| first + i * 37).collect()
}

/// Runs `work` on as many threads as there are streams; gives tokens per second of all together.
fn timed(work: impl Fn(u32) -> Outcome<usize> + Sync) -> Outcome<f64> {
    let start = Instant::now();
    let tokens = std::thread::scope(|scope| {
        let work = &work;
        let streams: Vec<_> = (0..STREAMS as u32)
            .map(|stream| scope.spawn(move || work(stream)))
            .collect();
        streams.into_iter().try_fold(0, |sum, stream| {
            let tokens = stream.join().map_err(|_| "a client panicked")??;
            Outcome::Ok(sum + tokens)
        })
    })?;
    if tokens != STREAMS * ANSWER_TOKENS {
        return Err(format!("{tokens} tokens came back").into());
    }
    Ok(tokens as f64 / start.elapsed().as_secs_f64())
}

fn generate(engine: &Engine, prompt: Vec<u32>) -> Outcome<usize> {
    let mut generation = engine.submit(Request {
        id: "bench".into(),
        prompt,
        sampling: Sampling {
            temperature: 0.0,
            max_tokens: Some(ANSWER_TOKENS),
            ignore_eos: true,
            ..Sampling::default()
        },
        priority: Priority::Normal,
        cache_salt: None,
    })?;
    let mut tokens = 0;
    while let Some(update) = generation.blocking_recv() {
        match update {
            Update::Delta { tokens: more, .. } => tokens += more.len(),
            Update::Failed(reason) => return Err(reason.into()),
            Update::Started { .. } | Update::Finished { .. } => {}
        }
    }
    Ok(tokens)
}

/// One streamed completion over a connection of its own; counts by the usage that the server reports.
fn request(address: SocketAddr, prompt: &[u32]) -> Outcome<usize> {
    let body = serde_json::json!({
        "model": "model", "prompt": prompt, "max_tokens": ANSWER_TOKENS, "temperature": 0,
        "ignore_eos": true, "stream": true, "stream_options": {"include_usage": true},
    })
    .to_string();
    let mut connection = TcpStream::connect(address)?;
    write!(
        connection,
        "POST /v1/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )?;
    let mut usage = None;
    for line in BufReader::new(connection).lines() {
        let line = line?;
        if let Some(at) = line.find("\"completion_tokens\":") {
            let digits = line[at..].split(':').nth(1).unwrap_or_default();
            usage = digits
                .split(|c: char| !c.is_ascii_digit())
                .next()
                .and_then(|n| n.parse().ok());
        }
    }
    usage.ok_or_else(|| "the stream ended without usage".into())
}

fn keep_best(figures: &mut BTreeMap<&'static str, f64>, name: &'static str, rate: f64) {
    let best = figures.entry(name).or_insert(rate);
    *best = best.max(rate);
}
