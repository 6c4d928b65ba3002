//! One connection, HTTP/1 or HTTP/2.

use std::future::poll_fn;
use std::io;
use std::net::TcpStream as StdTcpStream;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use bytes::{Bytes, BytesMut};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::rewound::Rewound;
use super::seldom::Seldom;
use super::stop::StopSwitch;
use super::underway::Underway;

/// After so much silence the kernel asks whether the peer is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// A client that takes nothing of what was sent to it for so long is as good as gone: what its answer holds
/// at a worker is given back.
const TAKES_NOTHING: Duration = Duration::from_secs(120);

/// Bytes of headers: enough for long tokens, and the most that a connection holds before a request.
const HEADER_BYTES: usize = 64 << 10;

/// Concurrent requests on one HTTP/2 connection.
const HTTP2_STREAMS: u32 = 256;

/// What an HTTP/2 client says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What is read at once to hear it: a usual request with its headers and its body.
const FIRST_READ: usize = 8 << 10;

/// A connection that waits to be served.
pub(crate) struct Connection {
    stream: StdTcpStream,
    /// What was read of it, and not yet served.
    before: Bytes,
    router: Router,
    header_timeout: Duration,
    is_known_http1: bool,
}

impl Connection {
    /// A connection that has just come in.
    pub(crate) fn new(
        stream: TcpStream,
        router: Router,
        header_timeout: Duration,
    ) -> io::Result<Self> {
        tune(&stream);
        Ok(Self {
            stream: stream.into_std()?,
            before: Bytes::new(),
            router,
            header_timeout,
            is_known_http1: false,
        })
    }

    /// Serves until the peer leaves, dawdles, or `stop` is pulled. Between two requests, when `goes` says so, it gives itself
    /// back to be served elsewhere.
    pub(crate) async fn serve(self, stop: StopSwitch, goes: impl Fn() -> bool) -> Option<Self> {
        let stream = match TcpStream::from_std(self.stream) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection was lost");
                return None;
            }
        };
        let mut socket = Rewound {
            before: self.before,
            stream,
        };
        if !self.is_known_http1 {
            let protocol = tokio::select! {
                protocol = protocol_of(&mut socket) => protocol
                    .inspect_err(|error| tracing::debug!(%error, "a connection ended badly"))
                    .ok()??,
                () = tokio::time::sleep(self.header_timeout) => {
                    tracing::debug!("a client sent no request in time");
                    return None;
                }
                () = stop.draining() => return None,
            };
            if protocol == Protocol::Http2 {
                serve_http2(socket, self.router, self.header_timeout, stop).await;
                return None;
            }
        }
        let (socket, router) =
            serve_http1(socket, self.router, self.header_timeout, stop, goes).await?;
        Some(Self {
            stream: socket.stream.into_std().ok()?,
            before: socket.before,
            router,
            header_timeout: self.header_timeout,
            is_known_http1: true,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// What the peer speaks; `None` if it leaves before that can be told. What was read for it can be read again.
async fn protocol_of(socket: &mut Rewound) -> io::Result<Option<Protocol>> {
    let mut read = BytesMut::with_capacity(FIRST_READ);
    let protocol = loop {
        if socket.stream.read_buf(&mut read).await? == 0 {
            return Ok(None);
        }
        let length = read.len().min(PREFACE.len());
        if read[..length] != PREFACE[..length] {
            break Protocol::Http1;
        }
        if length == PREFACE.len() {
            break Protocol::Http2;
        }
    };
    socket.before = read.freeze();
    Ok(Some(protocol))
}

/// What happened to a connection while it was served.
enum Turn {
    Ended(hyper::Result<()>),
    Goes,
    Drains,
    TooSlow,
    StopsNow,
}

async fn serve_http1(
    socket: Rewound,
    router: Router,
    header_timeout: Duration,
    stop: StopSwitch,
    goes: impl Fn() -> bool,
) -> Option<(Rewound, Router)> {
    let underway = Underway::default();
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(socket), underway.watch(router.clone()));
    let mut draining = Seldom::new(stop.draining());
    let mut is_draining = false;
    let mut now = Seldom::new(stop.now());
    loop {
        let turn = tokio::select! {
            turn = poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
                Poll::Ready(result) => Poll::Ready(Turn::Ended(result)),
                Poll::Pending if !is_draining && underway.is_at_rest() && goes() => Poll::Ready(Turn::Goes),
                Poll::Pending => Poll::Pending,
            }) => turn,
            () = &mut draining, if !is_draining => Turn::Drains,
            () = &mut now => Turn::StopsNow,
        };
        match turn {
            Turn::Drains => {
                is_draining = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            Turn::Goes => break,
            _ => return turn.end(),
        }
    }
    // Nothing is under way: what is left of the last answer is sent, and then it would be closed. It goes on instead, with what
    // was read of the next request.
    Pin::new(&mut connection).graceful_shutdown();
    let parts = tokio::select! {
        parts = connection.without_shutdown() => parts.ok()?,
        () = &mut now => return None,
    };
    let mut socket = parts.io.into_inner();
    socket.before = if socket.before.is_empty() {
        parts.read_buf
    } else {
        [parts.read_buf, socket.before].concat().into()
    };
    Some((socket, router))
}

async fn serve_http2(socket: Rewound, router: Router, header_timeout: Duration, stop: StopSwitch) {
    let underway = Underway::default();
    let mut connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE)
        .max_concurrent_streams(HTTP2_STREAMS)
        .serve_connection(TokioIo::new(socket), underway.watch(router));
    let mut first_request = Seldom::new(tokio::time::sleep(header_timeout));
    let mut waits_for_first = true;
    let mut draining = Seldom::new(stop.draining());
    let mut is_draining = false;
    let mut now = Seldom::new(stop.now());
    loop {
        let turn = tokio::select! {
            result = &mut connection => Turn::Ended(result),
            () = &mut draining, if !is_draining => Turn::Drains,
            // HTTP/1 has a time-out for that of its own.
            () = &mut first_request, if waits_for_first => {
                waits_for_first = false;
                if underway.heard_any() {
                    continue;
                }
                Turn::TooSlow
            }
            () = &mut now => Turn::StopsNow,
        };
        if matches!(turn, Turn::Drains) {
            is_draining = true;
            Pin::new(&mut connection).graceful_shutdown();
        } else {
            turn.end::<()>();
            return;
        }
    }
}

impl Turn {
    /// Says why a connection is at its end.
    fn end<T>(self) -> Option<T> {
        match self {
            Self::Ended(Err(error)) => tracing::debug!(%error, "a connection ended badly"),
            Self::TooSlow => tracing::debug!("a client sent no request in time"),
            Self::Ended(Ok(())) | Self::Goes | Self::Drains | Self::StopsNow => {}
        }
        None
    }
}

/// Failures here cost speed, not correctness.
fn tune(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let tuned = stream
        .set_nodelay(true)
        .and_then(|()| socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE)));
    #[cfg(target_os = "linux")]
    let tuned = tuned.and_then(|()| socket.set_tcp_user_timeout(Some(TAKES_NOTHING)));
    if let Err(error) = tuned {
        tracing::debug!(%error, "a socket could not be tuned");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use axum::routing::{get, post};
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    const REQUEST: &[u8] = b"GET /hello HTTP/1.1\r\nhost: here\r\n\r\n";

    /// A client's end, and a connection that is to be served.
    async fn connected() -> (TcpStream, Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let router = Router::new()
            .route("/hello", get(|| async { "hello" }))
            .route("/echo", post(|body: Bytes| async { body }))
            .route("/deaf", post(|| async { "hello" }));
        let timeout = Duration::from_secs(5);
        (client, Connection::new(stream, router, timeout).unwrap())
    }

    /// What has arrived when it ends with `end`.
    async fn heard(client: &mut TcpStream, end: &str) -> String {
        let mut heard = BytesMut::new();
        while !heard.ends_with(end.as_bytes()) {
            let read = tokio::time::timeout(Duration::from_secs(5), client.read_buf(&mut heard));
            assert_ne!(read.await.unwrap().unwrap(), 0, "{heard:?}");
        }
        String::from_utf8(heard.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_client_does_not_notice_that_its_connection_goes_elsewhere() {
        let (mut client, mut connection) = connected().await;
        for _ in 0..3 {
            client.write_all(REQUEST).await.unwrap();
            let served = connection.serve(StopSwitch::new(), || true);
            let (goes_on, heard) = tokio::join!(served, heard(&mut client, "hello"));
            assert!(!heard.contains("connection: close"), "{heard}");
            connection = goes_on.unwrap();
        }
    }

    #[tokio::test]
    async fn what_was_read_of_the_next_request_goes_along() {
        let (mut client, connection) = connected().await;
        let (first, second) = REQUEST.split_at(9);
        client.write_all(REQUEST).await.unwrap();
        client.write_all(first).await.unwrap();
        let served = connection.serve(StopSwitch::new(), || true);
        let (goes_on, _) = tokio::join!(served, heard(&mut client, "hello"));
        let connection = goes_on.unwrap();
        assert!(connection.before.is_empty() || *connection.before == *first);
        client.write_all(second).await.unwrap();
        let served = connection.serve(StopSwitch::new(), || true);
        let (goes_on, _) = tokio::join!(served, heard(&mut client, "hello"));
        assert!(goes_on.is_some());
    }

    #[tokio::test]
    async fn requests_that_come_together_are_all_answered() {
        let (mut client, connection) = connected().await;
        client.write_all(&REQUEST.repeat(20)).await.unwrap();
        let serving = tokio::spawn(async move {
            let mut next = Some(connection);
            while let Some(connection) = next {
                next = connection.serve(StopSwitch::new(), || true).await;
            }
        });
        let mut answers = 0;
        while answers < 20 {
            answers += heard(&mut client, "hello").await.matches("200 OK").count();
        }
        drop(client);
        serving.await.unwrap();
    }

    /// Else the rest of a body would be taken for a request.
    #[tokio::test]
    async fn a_connection_whose_request_was_not_read_to_its_end_goes_nowhere() {
        let (mut client, connection) = connected().await;
        let head = b"POST /deaf HTTP/1.1\r\nhost: here\r\ncontent-length: 60\r\n\r\nbody";
        client.write_all(head).await.unwrap();
        let served = connection.serve(StopSwitch::new(), || true);
        let (goes_on, _) = tokio::join!(served, heard(&mut client, "hello"));
        assert!(goes_on.is_none());
    }

    #[tokio::test]
    async fn a_request_that_is_under_way_stays() {
        let (mut client, connection) = connected().await;
        let head = b"POST /echo HTTP/1.1\r\nhost: here\r\ncontent-length: 5\r\n\r\nhe";
        client.write_all(head).await.unwrap();
        let mut served = std::pin::pin!(connection.serve(StopSwitch::new(), || true));
        let waited = tokio::time::timeout(Duration::from_millis(50), served.as_mut());
        assert!(waited.await.is_err());
        client.write_all(b"llo").await.unwrap();
        let (goes_on, _) = tokio::join!(served, heard(&mut client, "hello"));
        assert!(goes_on.is_some());
    }

    #[tokio::test]
    async fn both_protocols_are_told_by_their_first_bytes() {
        let cases: [(&[&[u8]], Option<Protocol>); 5] = [
            (&[REQUEST], Some(Protocol::Http1)),
            (&[b"P", b"OST / "], Some(Protocol::Http1)),
            (&[b"PRI * HT", b"TP/1.1\r\n"], Some(Protocol::Http1)),
            (&[b"PRI", &PREFACE[3..], b"more"], Some(Protocol::Http2)),
            (&[b"PR"], None),
        ];
        for (pieces, expected) in cases {
            let (mut client, connection) = connected().await;
            let sending = async move {
                for piece in pieces {
                    client.write_all(piece).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            let mut socket = Rewound {
                before: Bytes::new(),
                stream: TcpStream::from_std(connection.stream).unwrap(),
            };
            let (protocol, ()) = tokio::join!(protocol_of(&mut socket), sending);
            assert_eq!(protocol.unwrap(), expected);
        }
    }
}
