//! A worker that does as it is told, byte by byte.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// What a worker does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Deed {
    /// Answers with this status, these header lines and this body.
    Answer(u16, &'static str, String),
    /// Streams these events, then does something.
    Stream(Vec<String>, Then),
    /// Streams these events with a pause before each.
    Slowly(Vec<String>, Duration),
    /// Says what the last message says.
    Echo,
    /// Takes the request and never says anything.
    Wedge,
    /// Hangs up without an answer.
    HangUp,
}

/// What a worker does after its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Ends the stream as it should.
    End,
    /// Hangs up in the middle of it.
    HangUp,
    /// Says nothing more.
    Wedge,
    /// Repeats its last event as fast as it is read.
    GoOn,
    /// Waits for [`FakeWorker::release`], then says what is missing of an answer and ends as it should.
    Wait,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

#[derive(Default)]
struct Books {
    deeds: Mutex<VecDeque<Deed>>,
    otherwise: Mutex<Option<Deed>>,
    seen: Mutex<Vec<Seen>>,
    /// Requests whose connection is still open and whose answer has not ended.
    open: AtomicUsize,
    connections: AtomicUsize,
    written: AtomicUsize,
    released: AtomicBool,
    release: Notify,
}

/// A worker. Dropping it is its death.
pub(crate) struct FakeWorker {
    pub(crate) address: SocketAddr,
    books: Arc<Books>,
    serving: JoinHandle<()>,
}

impl Drop for FakeWorker {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl FakeWorker {
    /// A worker that does this with every request.
    pub(crate) async fn start(deed: Deed) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let books = Arc::new(Books::default());
        *books.otherwise.lock().unwrap() = Some(deed);
        let shared = Arc::clone(&books);
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, Arc::clone(&shared)));
                while connections.try_join_next().is_some() {}
            }
        });
        Self {
            address,
            books,
            serving,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What to do with the next requests; then as before.
    pub(crate) fn next(&self, deeds: impl IntoIterator<Item = Deed>) {
        self.books.deeds.lock().unwrap().extend(deeds);
    }

    /// All requests but probes.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.books.seen.lock().unwrap().clone()
    }

    /// Requests that wait for their answer's end.
    pub(crate) fn open(&self) -> usize {
        self.books.open.load(Ordering::SeqCst)
    }

    /// Connections that carried a request that was no probe.
    pub(crate) fn connections(&self) -> usize {
        self.books.connections.load(Ordering::SeqCst)
    }

    /// Lets all streams end that wait for it, now and later.
    pub(crate) fn release(&self) {
        self.books.released.store(true, Ordering::SeqCst);
        self.books.release.notify_waiters();
    }

    /// Bytes of streams that were taken from it.
    pub(crate) fn written(&self) -> usize {
        self.books.written.load(Ordering::SeqCst)
    }
}

/// Counts a request as open until dropped.
struct Open<'a>(&'a Books);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn serve(mut stream: TcpStream, books: Arc<Books>) {
    let mut is_counted = false;
    while let Some(seen) = read_request(&mut stream).await {
        if seen.path == "/health" || seen.path == "/metrics" {
            let status = if seen.path == "/health" { 200 } else { 404 };
            if answer(&mut stream, status, "", "").await.is_err() {
                return;
            }
            continue;
        }
        if !std::mem::replace(&mut is_counted, true) {
            books.connections.fetch_add(1, Ordering::SeqCst);
        }
        books.open.fetch_add(1, Ordering::SeqCst);
        let _open = Open(&books);
        let body = seen.body.clone();
        books.seen.lock().unwrap().push(seen);
        let deed = books.deeds.lock().unwrap().pop_front();
        let deed = deed.unwrap_or_else(|| books.otherwise.lock().unwrap().clone().unwrap());
        let goes_on = match deed {
            Deed::Answer(status, headers, body) => {
                answer(&mut stream, status, headers, &body).await.is_ok()
            }
            Deed::Stream(events, then) => tell(&mut stream, &events, then, &books).await,
            Deed::Slowly(events, pause) => tell_slowly(&mut stream, &events, pause).await,
            Deed::Echo => {
                let said = serde_json::json!({
                    "id": "x", "object": "chat.completion", "created": 7, "model": "m",
                    "choices": [{"index": 0, "finish_reason": "stop",
                                 "message": {"role": "assistant", "content": last_message(&body)}}],
                    "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
                });
                answer(&mut stream, 200, "", &said.to_string())
                    .await
                    .is_ok()
            }
            Deed::Wedge => {
                until_left(&mut stream).await;
                false
            }
            Deed::HangUp => false,
        };
        if !goes_on {
            return;
        }
    }
}

async fn answer(
    stream: &mut TcpStream,
    status: u16,
    headers: &str,
    body: &str,
) -> std::io::Result<()> {
    let answer = format!(
        "HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\nserver: fake\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await
}

async fn tell(stream: &mut TcpStream, events: &[String], then: Then, books: &Books) -> bool {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
    if stream.write_all(head.as_bytes()).await.is_err() {
        return false;
    }
    let chunk = |event: &String| format!("{:x}\r\n{event}\r\n", event.len());
    for event in events {
        let chunk = chunk(event);
        if stream.write_all(chunk.as_bytes()).await.is_err() {
            return false;
        }
        books.written.fetch_add(chunk.len(), Ordering::SeqCst);
    }
    match then {
        Then::End => stream.write_all(b"0\r\n\r\n").await.is_ok(),
        Then::HangUp => false,
        Then::Wait => {
            let released = books.release.notified();
            if !books.released.load(Ordering::SeqCst) {
                released.await;
            }
            let mut last = String::new();
            if !events.last().unwrap().contains("[DONE]") {
                last.extend(ending(10, 2, 0).iter().map(chunk));
            }
            last.push_str("0\r\n\r\n");
            stream.write_all(last.as_bytes()).await.is_ok()
        }
        Then::Wedge => {
            until_left(stream).await;
            false
        }
        Then::GoOn => {
            let chunk = chunk(events.last().unwrap());
            while stream.write_all(chunk.as_bytes()).await.is_ok() {
                books.written.fetch_add(chunk.len(), Ordering::SeqCst);
            }
            false
        }
    }
}

async fn tell_slowly(stream: &mut TcpStream, events: &[String], pause: Duration) -> bool {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
    if stream.write_all(head.as_bytes()).await.is_err() {
        return false;
    }
    for event in events {
        // This *is* the passing of time under test: a worker that takes so long.
        tokio::time::sleep(pause).await;
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        if stream.write_all(chunk.as_bytes()).await.is_err() {
            return false;
        }
    }
    stream.write_all(b"0\r\n\r\n").await.is_ok()
}

fn last_message(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap();
    let last = body["messages"].as_array().unwrap().last().unwrap().clone();
    last["content"].as_str().unwrap().to_owned()
}

/// Waits until the other side hangs up.
async fn until_left(stream: &mut TcpStream) {
    let mut byte = [0];
    while !matches!(stream.read(&mut byte).await, Ok(0) | Err(_)) {}
}

async fn read_request(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    let mut body = bytes.split_off(head_end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    let path = head.split(' ').nth(1)?.to_owned();
    Some(Seen { path, head, body })
}

/// An event of a streamed chat.
pub(crate) fn word(text: &str) -> String {
    let text = serde_json::to_string(text).unwrap();
    format!(
        "data: {{\"id\":\"chatcmpl-x\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{text}}},\"finish_reason\":null}}]}}\n\n"
    )
}

/// The first event of a streamed chat.
pub(crate) fn opening() -> String {
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n".to_owned()
}

/// The last events of a streamed chat, with its usage.
pub(crate) fn ending(prompt: u64, completion: u64, cached: u64) -> Vec<String> {
    let usage = serde_json::json!({
        "choices": [],
        "usage": {
            "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    });
    vec![
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\"}]}\n\n".to_owned(),
        format!("data: {usage}\n\n"),
        "data: [DONE]\n\n".to_owned(),
    ]
}

/// A whole stream of these words.
pub(crate) fn speech(words: &[&str]) -> Deed {
    let mut events = vec![opening()];
    events.extend(words.iter().map(|text| word(text)));
    events.extend(ending(10, words.len() as u64, 8));
    Deed::Stream(events, Then::End)
}

/// A whole answer.
pub(crate) fn whole(text: &str) -> Deed {
    let body = serde_json::json!({
        "id": "x", "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12,
                  "prompt_tokens_details": {"cached_tokens": 8}},
    });
    Deed::Answer(200, "", body.to_string())
}
