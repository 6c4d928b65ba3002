//! Starts the binary, and workers for it to stand in front of.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use testkit::mock_vllm::{MockConfig, MockVllm};
use tokio::runtime::Runtime;

pub(crate) fn forespeak(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forespeak"));
    command.args(arguments).env_remove("FORESPEAK_MODEL");
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    forespeak(arguments).output().unwrap()
}

/// A server that has said where it listens, and what it said.
pub(crate) struct Server {
    process: Child,
    pub(crate) banner: String,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn with_model(command: &str, model: &Path, more: &[&str]) -> Self {
        let model = model.to_str().unwrap();
        let limits = [
            "--threads",
            "1",
            "--max-model-len",
            "256",
            "--kv-cache-memory",
            "16MiB",
        ];
        let arguments = [&[command, "--model", model], &limits[..], more].concat();
        Self::start(&arguments)
    }

    /// Starts it on a free port.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut process = forespeak(arguments)
            .args(["--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut banner = String::new();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().expect("it says where it listens").unwrap();
            banner.push_str(&line);
            banner.push('\n');
            if let Some((_, address)) = line.split_once("address    http://") {
                break address.to_owned();
            }
        };
        Self {
            process,
            banner,
            address,
        }
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> String {
        send(&self.address, "POST", path, "", body)
    }

    /// Where its admin API listens.
    pub(crate) fn admin(&self) -> &str {
        let line = self
            .banner
            .lines()
            .find_map(|line| line.split_once("admin      http://"));
        line.expect("it says where the admin API listens").1
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status().unwrap();
        assert!(sent.success());
    }

    pub(crate) fn terminate(mut self) -> Option<i32> {
        self.signal("-TERM");
        self.process.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One request; all of what came back, head and body.
pub(crate) fn send(address: &str, method: &str, path: &str, headers: &str, body: &str) -> String {
    let mut stream = open(address, method, path, headers, body);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// One request whose answer is still to be read.
pub(crate) fn open(
    address: &str,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    stream
}

/// Polls until there is something. Panics after a long time.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Workers that run for as long as this lives.
pub(crate) struct Workers {
    pub(crate) mocks: Vec<MockVllm>,
    runtime: Runtime,
}

impl Workers {
    pub(crate) fn start(count: usize) -> Self {
        Self::with((0..count).map(|_| MockConfig::default()))
    }

    pub(crate) fn with(configs: impl IntoIterator<Item = MockConfig>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let configs = configs.into_iter();
        let mocks = configs.map(|config| runtime.block_on(MockVllm::start(config)).unwrap());
        let mocks = mocks.collect();
        Self { mocks, runtime }
    }

    /// Sudden death of the last one.
    pub(crate) fn kill_one(&mut self) {
        if let Some(mock) = self.mocks.pop() {
            self.runtime.block_on(mock.kill());
        }
    }

    /// Requests to generate that each has seen.
    pub(crate) fn asked(&self) -> Vec<usize> {
        let generating = |mock: &MockVllm| {
            let seen = mock.seen();
            seen.iter()
                .filter(|seen| seen.path.ends_with("/completions"))
                .count()
        };
        self.mocks.iter().map(generating).collect()
    }
}
