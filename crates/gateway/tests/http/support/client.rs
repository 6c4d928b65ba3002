//! A client as small as can be, so that tests see the bytes on the wire.

use std::net::SocketAddr;
use std::time::Duration;

use protocol::sse::{Decoder, Event};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The data of all events.
    pub(crate) fn events(&self) -> Vec<String> {
        let mut events: Vec<Event> = Vec::new();
        Decoder::default().push(&self.body, &mut events).unwrap();
        events.into_iter().map(|event| event.data).collect()
    }

    /// All events but the last, which must be `[DONE]`, as JSON.
    pub(crate) fn chunks(&self) -> Vec<Value> {
        let mut events = self.events();
        assert_eq!(events.pop().as_deref(), Some("[DONE]"), "{}", self.text());
        events
            .iter()
            .map(|event| serde_json::from_str(event).unwrap())
            .collect()
    }
}

pub(crate) async fn post(address: SocketAddr, path: &str, body: &Value) -> Answer {
    post_with(address, path, "", body.to_string().as_bytes()).await
}

/// `headers` are whole lines, each ended by CRLF.
pub(crate) async fn post_with(
    address: SocketAddr,
    path: &str,
    headers: &str,
    body: &[u8],
) -> Answer {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n",
        body.len()
    );
    let mut request = head.into_bytes();
    request.extend_from_slice(body);
    send(address, &request).await
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Answer {
    let head = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    send(address, head.as_bytes()).await
}

/// Waits until the metrics say so: a request is counted a moment after its place is free.
pub(crate) async fn until_counted(address: SocketAddr, line: &str) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        let page = get(address, "/metrics").await.text();
        if page.contains(line) {
            return;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "never {line}: {page}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Sends raw bytes and reads until the server closes.
pub(crate) async fn send(address: SocketAddr, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server that refuses early may close before it has read everything.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    parse(&answer)
}

/// A request whose answer is read piece by piece.
pub(crate) async fn open(address: SocketAddr, path: &str, body: &Value) -> TcpStream {
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Reads until `needle` has come; gives everything so far.
pub(crate) async fn read_until(stream: &mut TcpStream, needle: &str) -> Vec<u8> {
    let mut seen = Vec::new();
    let mut piece = [0; 4096];
    while !String::from_utf8_lossy(&seen).contains(needle) {
        let count = stream.read(&mut piece).await.unwrap();
        assert_ne!(
            count,
            0,
            "closed before {needle:?}: {}",
            String::from_utf8_lossy(&seen)
        );
        seen.extend_from_slice(&piece[..count]);
    }
    seen
}

pub(crate) async fn read_rest(stream: &mut TcpStream, mut seen: Vec<u8>) -> Answer {
    stream.read_to_end(&mut seen).await.unwrap();
    parse(&seen)
}

fn parse(answer: &[u8]) -> Answer {
    let split = answer
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap_or_else(|| panic!("no head: {:?}", String::from_utf8_lossy(answer)));
    let head = String::from_utf8(answer[..split].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = &answer[split + 4..];
    let body = if head.contains("transfer-encoding: chunked") {
        dechunk(body)
    } else {
        body.to_vec()
    };
    Answer { status, head, body }
}

fn dechunk(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|window| window == b"\r\n");
        let Some(line) = line else { return body };
        let size = std::str::from_utf8(&rest[..line]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return body;
        }
        let start = line + 2;
        body.extend_from_slice(&rest[start..start + size]);
        rest = &rest[start + size + 2..];
    }
}

/// A seed for what happens at random. It is printed, and `FORESPEAK_SEED` gives it again.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("FORESPEAK_SEED").ok();
    let seed = given.and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.as_nanos() as u64)
    });
    eprintln!("FORESPEAK_SEED={seed}");
    seed
}

/// A number that looks random (splitmix64).
pub(crate) fn scramble(number: u64) -> u64 {
    let mut state = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}
