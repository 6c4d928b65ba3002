//! What the gateway itself costs in front of workers that cost nothing: processor time of this process per
//! thousand requests, with workers and clients in processes of their own.
//!
//! `cargo run --release -p forespeak-gateway --example relay_cost -- [--model MODEL.gguf] [--seconds N] [CELL…]`
//!
//! Cells are `chat` (4 kB, one piece), `stream` (4 kB, 32 chunks) and `long` (400 kB, one piece). With a
//! model its tokenizer is used and requests are routed by token ids, else by text.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fleet::{FleetConfig, WorkerSpec, WorkerUrl};
use forespeak_gateway::placement::{Pool, PoolConfig};
use forespeak_gateway::tenants::{SaltSecret, Tenants};
use forespeak_gateway::{
    Catalog, Codec, FleetModel, Gateway, ModelCodec, Server, ServerConfig, StopSwitch,
};
use model::{Compute, LoadOptions, Model, ModelSource, Tier};
use testkit::mock_vllm::constant::{ConstantConfig, ConstantWorker};

const CONNECTIONS: usize = 8;
const MODEL: &str = "mock";

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[allow(clippy::print_stdout)] // Printing is what it is for.
fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1).peekable();
    match arguments.peek().map(String::as_str) {
        Some("workers") => return workers(),
        Some("client") => {
            let given: Vec<String> = arguments.skip(1).collect();
            let [address, cell, seconds] = given.as_slice() else {
                return Err("client ADDRESS CELL SECONDS".into());
            };
            return client(
                address.parse()?,
                cell,
                Duration::from_secs(seconds.parse()?),
            );
        }
        _ => {}
    }
    let (mut model, mut seconds, mut cells) = (None, "5".to_owned(), Vec::new());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--model" => model = Some(PathBuf::from(arguments.next().ok_or("--model PATH")?)),
            "--seconds" => seconds = arguments.next().ok_or("--seconds N")?,
            _ => cells.push(argument),
        }
    }
    if cells.is_empty() {
        cells = ["chat", "stream", "long"].map(str::to_owned).to_vec();
    }
    let codec = model.map(codec).transpose()?;

    let mut there = Helper::start(&["workers"])?;
    let urls = [there.line()?, there.line()?];
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let _inside = runtime.enter();
    let (server, pool) = gateway(&urls, codec)?;
    let address = server.address().to_string();
    let stop = StopSwitch::new();
    let running = runtime.spawn(server.run(stop.clone()));
    while pool
        .snapshot()
        .workers()
        .iter()
        .any(|worker| worker.sighting().is_none())
    {
        std::thread::sleep(Duration::from_millis(10));
    }
    for cell in cells {
        // The first second warms up.
        Helper::start(&["client", &address, &cell, "1"])?.line()?;
        let before = cpu_time()?;
        let count: f64 = Helper::start(&["client", &address, &cell, &seconds])?
            .line()?
            .parse()?;
        let spent = cpu_time()?.saturating_sub(before);
        println!(
            "{cell}: {:.0} ms per 1,000 requests ({count} requests in {seconds} s)",
            spent.as_secs_f64() * 1e6 / count
        );
    }
    stop.stop_now();
    Ok(runtime.block_on(running)?)
}

fn gateway(urls: &[String], codec: Option<Arc<dyn Codec>>) -> Outcome<(Server, Arc<Pool>)> {
    let mut fleet = FleetConfig::default();
    for url in urls {
        fleet.workers.push(WorkerSpec::new(WorkerUrl::parse(url)?));
    }
    let config = PoolConfig::new(fleet::DEFAULT_POOL, fleet);
    let pool = Arc::new(Pool::start(config, codec)?);
    let served = FleetModel::new(MODEL, Arc::clone(&pool));
    let catalog = Catalog::new(vec![Arc::new(served)]);
    let tenants = Tenants::open(&SaltSecret::random());
    let config = ServerConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        ..ServerConfig::default()
    };
    let gateway = Gateway::in_front_of(catalog, tenants);
    Ok((Server::bind(config, Arc::new(gateway))?, pool))
}

fn codec(path: PathBuf) -> Outcome<Arc<dyn Codec>> {
    let options = LoadOptions {
        quantize: None,
        chat_template: None,
        compute: Arc::new(Compute::new(Tier::detect(), 1)),
        progress: &|_| {},
    };
    let (_, tokenizer, template) = Model::load(&ModelSource::Path(path), &options)?.into_parts();
    Ok(Arc::new(ModelCodec::new(tokenizer, template)))
}

/// User and system time of this process.
fn cpu_time() -> Outcome<Duration> {
    // Fields 14 and 15 after the name, which may hold anything but a closing bracket of its own.
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<u64>().unwrap_or(0))
        .sum();
    Ok(Duration::from_millis(ticks * 10))
}

/// This program once more, in another part.
struct Helper {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Helper {
    fn start(arguments: &[&str]) -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Self { child, lines })
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill();
        let _waited = self.child.wait();
    }
}

#[allow(clippy::print_stdout)]
fn workers() -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let config = ConstantConfig {
            model: MODEL.to_owned(),
            ..ConstantConfig::default()
        };
        let one = ConstantWorker::start(&config)?;
        let two = ConstantWorker::start(&config)?;
        println!("{}\n{}", one.url(), two.url());
        std::future::pending::<()>().await;
        Ok(())
    })
}

#[allow(clippy::print_stdout)]
fn client(address: SocketAddr, cell: &str, time: Duration) -> Outcome<()> {
    let (bytes, stream) = match cell {
        "chat" => (4 << 10, false),
        "stream" => (4 << 10, true),
        "long" => (400 << 10, false),
        other => return Err(format!("no cell {other}").into()),
    };
    let end = Instant::now() + time;
    let counts: Vec<Outcome<u64>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|number| scope.spawn(move || ask(address, number, bytes, stream, end)))
            .collect();
        let joined = clients.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined
            .map(|count| count.unwrap_or(Err("a client panicked".into())))
            .collect()
    });
    let total: u64 = counts.into_iter().sum::<Outcome<u64>>()?;
    println!("{total}");
    Ok(())
}

/// A chat of its own for every connection, over and over.
fn ask(
    address: SocketAddr,
    number: usize,
    bytes: usize,
    stream: bool,
    end: Instant,
) -> Outcome<u64> {
    let words = format!("client {number} says what it always says, and then some. ");
    let content = words.repeat(bytes / words.len());
    let body = serde_json::json!({
        "model": MODEL, "stream": stream, "max_tokens": 32,
        "messages": [{"role": "system", "content": "You are brief."}, {"role": "user", "content": content}],
    })
    .to_string();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: cost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut connection = TcpStream::connect(address)?;
    connection.set_nodelay(true)?;
    let mut answer = Vec::new();
    let mut count = 0;
    while Instant::now() < end {
        connection.write_all(request.as_bytes())?;
        answer.clear();
        while !is_whole(&answer) {
            let mut piece = [0; 16 << 10];
            let read = connection.read(&mut piece)?;
            if read == 0 {
                return Err("the gateway hung up".into());
            }
            answer.extend_from_slice(&piece[..read]);
        }
        if !answer.starts_with(b"HTTP/1.1 200") {
            return Err(String::from_utf8_lossy(&answer).into());
        }
        count += 1;
    }
    Ok(count)
}

fn is_whole(answer: &[u8]) -> bool {
    let Some(head) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
        return false;
    };
    let text = String::from_utf8_lossy(&answer[..head]);
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    match length.and_then(|length| length.parse::<usize>().ok()) {
        Some(length) => answer.len() >= head + 4 + length,
        None => answer.ends_with(b"\r\n0\r\n\r\n"),
    }
}
