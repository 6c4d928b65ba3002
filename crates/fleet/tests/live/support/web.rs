//! A worker's HTTP side, with manners to choose.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What a path does.
#[derive(Clone)]
pub(crate) enum Behaviour {
    /// Answers with this status, further headers and body.
    Answer(u16, &'static str, String),
    /// Reads the request and never answers.
    Hang,
    /// Closes the connection without an answer.
    Reset,
}

#[derive(Default)]
struct Shared {
    paths: Mutex<HashMap<String, Behaviour>>,
    open: AtomicUsize,
    most_open: AtomicUsize,
    requests: AtomicUsize,
}

/// A web server; dropping it kills it with all its connections.
pub(crate) struct Web {
    pub(crate) port: u16,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for Web {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Web {
    /// Healthy, and printing this page.
    pub(crate) async fn start(metrics: &str) -> Self {
        Self::start_on(0, metrics).await
    }

    pub(crate) async fn start_on(port: u16, metrics: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let shared = Arc::new(Shared::default());
        let web = Self {
            port: listener.local_addr().unwrap().port(),
            shared: Arc::clone(&shared),
            task: tokio::spawn(accept(listener, shared)),
        };
        web.behave("/health", Behaviour::Answer(200, "", String::new()));
        web.behave("/metrics", Behaviour::Answer(200, "", metrics.to_owned()));
        web
    }

    pub(crate) fn behave(&self, path: &str, behaviour: Behaviour) {
        self.shared
            .paths
            .lock()
            .unwrap()
            .insert(path.to_owned(), behaviour);
    }

    /// The most requests for metrics that were open at once.
    pub(crate) fn most_open(&self) -> usize {
        self.shared.most_open.load(Ordering::SeqCst)
    }

    /// Requests for metrics so far.
    pub(crate) fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        connections.spawn(serve(stream, Arc::clone(&shared)));
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let mut buffer = Vec::new();
    loop {
        while !buffer.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        let request = String::from_utf8_lossy(&buffer).into_owned();
        buffer.clear();
        let path = request.split(' ').nth(1).unwrap_or("/").to_owned();
        let behaviour = shared.paths.lock().unwrap().get(&path).cloned();
        let counted = path == "/metrics";
        if counted {
            shared.requests.fetch_add(1, Ordering::SeqCst);
            let open = shared.open.fetch_add(1, Ordering::SeqCst) + 1;
            shared.most_open.fetch_max(open, Ordering::SeqCst);
        }
        let close = match behaviour.unwrap_or(Behaviour::Answer(404, "", String::new())) {
            Behaviour::Answer(status, headers, body) => {
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n",
                    body.len()
                );
                let sent = stream.write_all(head.as_bytes()).await;
                sent.is_err() || stream.write_all(body.as_bytes()).await.is_err()
            }
            Behaviour::Hang => {
                while matches!(stream.read_buf(&mut buffer).await, Ok(n) if n > 0) {}
                true
            }
            Behaviour::Reset => true,
        };
        if counted {
            shared.open.fetch_sub(1, Ordering::SeqCst);
        }
        if close {
            return;
        }
    }
}
