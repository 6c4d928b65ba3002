//! A client that reads to the end and closes.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What came back, with the body's chunks joined.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
    /// Whether the body ended where it said it would.
    pub(crate) complete: bool,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The data of the events, the last one being `[DONE]`.
    pub(crate) fn events(&self) -> Vec<String> {
        let mut decoder = protocol::sse::Decoder::default();
        let mut events = Vec::new();
        decoder.push(self.body.as_bytes(), &mut events).unwrap();
        events.into_iter().map(|event| event.data).collect()
    }

    /// The text of a streamed chat.
    pub(crate) fn streamed_text(&self) -> String {
        self.events()
            .iter()
            .filter_map(|event| serde_json::from_str::<Value>(event).ok())
            .filter_map(|event| Some(event["choices"][0]["delta"]["content"].as_str()?.to_owned()))
            .collect()
    }
}

pub(crate) async fn open(address: SocketAddr, path: &str, body: &Value) -> TcpStream {
    let body = body.to_string();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: mock\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    stream
}

pub(crate) async fn post(address: SocketAddr, path: &str, body: &Value) -> Reply {
    read(open(address, path, body).await).await
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Reply {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: mock\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    read(stream).await
}

async fn read(mut stream: TcpStream) -> Reply {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    let text = String::from_utf8(bytes).unwrap();
    let (head, rest) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let (body, complete) = if head.contains("chunked") {
        unchunk(rest)
    } else {
        (rest.to_owned(), !head.is_empty())
    };
    Reply {
        status: status.unwrap_or(0),
        head: head.to_owned(),
        body,
        complete,
    }
}

fn unchunk(mut rest: &str) -> (String, bool) {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return (body, true);
        }
        let Some(piece) = after.get(..size) else {
            break;
        };
        body.push_str(piece);
        rest = after.get(size + 2..).unwrap_or("");
    }
    (body, false)
}
