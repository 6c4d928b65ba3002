//! A vLLM that is none: the simulator's worker on a real clock and a real socket.
//!
//! It takes as long as the simulated worker would (prefill rate, batch-dependent time between tokens, finite KV
//! cache with prefix reuse, preemption), and speaks as vLLM does: OpenAI's routes, streamed and not, `/metrics` under
//! today's names, KV events over ZMQ with replay. What it answers is a function of the prompt alone, so that a
//! test can say what must come out, from whichever worker, in one piece or continued on another.
//!
//! Faults are switched on and off while it runs ([`Faults`]), or scripted for the next requests ([`Misdeed`]).
//! Everything it counts is open to tests ([`Books`]).
//!
//! ```
//! use forespeak_testkit::mock_vllm::{Misdeed, MockConfig, MockVllm};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let mock = MockVllm::start(MockConfig::default()).await.unwrap();
//! assert!(mock.url().starts_with("http://127.0.0.1:"));
//! mock.script([Misdeed::Status(503), Misdeed::CutAfter { tokens: 3 }]);
//! mock.faults(|faults| faults.draining = true);
//! assert_eq!(mock.books().running, 0);
//! # });
//! ```
//!
//! [`constant`] is another kind of worker, for measuring what stands in front of it.

mod answer;
mod body;
mod books;
mod config;
pub mod constant;
mod driver;
mod events;
mod faults;
mod generate;
mod metrics;
mod request;
mod routes;
mod server;
mod shape;
mod vocabulary;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use books::SharedBooks;
use driver::Driver;
use events::Publisher;
use faults::Script;
use routes::{Routes, SeenLog};

pub use answer::Answer;
pub use books::Books;
pub use config::MockConfig;
pub use faults::{EventFault, Faults, MetricsFault, Misdeed};
pub use vocabulary::Vocabulary;

/// A request that came, as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Where to.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// A mock that runs. Dropping it is its sudden death.
pub struct MockVllm {
    config: MockConfig,
    address: SocketAddr,
    publisher: Option<Publisher>,
    faults: Arc<watch::Sender<Faults>>,
    script: Script,
    books: SharedBooks,
    seen: SeenLog,
    tasks: Vec<JoinHandle<()>>,
}

impl MockVllm {
    /// Binds its sockets on the loopback interface and serves.
    pub async fn start(config: MockConfig) -> io::Result<Self> {
        let faults = Arc::new(watch::Sender::new(Faults::default()));
        let books = SharedBooks::default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        books.write(|books| books.started_at = now.unwrap_or_default().as_secs_f64());
        let script = Script::default();
        let seen = SeenLog::default();
        let publisher = if config.publishes_events {
            Some(Publisher::start(&config, faults.subscribe()).await?)
        } else {
            None
        };
        let (jobs, inbox) = mpsc::unbounded_channel();
        let driver = Driver::new(
            &config,
            inbox,
            faults.subscribe(),
            books.clone(),
            publisher.as_ref().map(Publisher::sender),
        );
        let routes = Arc::new(Routes {
            config: config.clone(),
            jobs,
            faults: Arc::clone(&faults),
            script: script.clone(),
            books: books.clone(),
            seen: seen.clone(),
        });
        let listener = server::listen(config.port)?;
        let address = listener.local_addr()?;
        let tasks = vec![
            tokio::spawn(driver.drive()),
            tokio::spawn(server::serve(listener, routes)),
        ];
        Ok(Self {
            config,
            address,
            publisher,
            faults,
            script,
            books,
            seen,
            tasks,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same as a base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where KV events are published, and where they are replayed.
    pub fn event_endpoints(&self) -> Option<(String, String)> {
        let publisher = self.publisher.as_ref()?;
        let endpoint = |port: u16| format!("tcp://127.0.0.1:{port}");
        Some((
            endpoint(publisher.events_port),
            endpoint(publisher.replay_port),
        ))
    }

    /// What it has counted and what runs now.
    pub fn books(&self) -> Books {
        self.books.read()
    }

    /// Changes how it misbehaves from now on.
    pub fn faults(&self, change: impl FnOnce(&mut Faults)) {
        self.faults.send_modify(change);
    }

    /// What the next generating requests get instead of an answer, in this order.
    pub fn script(&self, misdeeds: impl IntoIterator<Item = Misdeed>) {
        self.script.extend(misdeeds);
    }

    /// The last requests to routes that generate or were not expected.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.read()
    }

    /// Kills it, and gives the configuration with which [`MockVllm::start`] brings it back on the same ports.
    pub async fn kill(mut self) -> MockConfig {
        for task in &mut self.tasks {
            task.abort();
            let _ = task.await;
        }
        let mut config = self.config.clone();
        config.port = self.address.port();
        if let Some(publisher) = self.publisher.take() {
            config.events_port = publisher.events_port;
            config.replay_port = publisher.replay_port;
            publisher.stop().await;
        }
        config
    }
}

impl Drop for MockVllm {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
