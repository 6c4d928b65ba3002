//! One connection to one peer.

use std::fmt;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::frame::{self, Command, FrameError, GREETING_BYTES, MAX_FRAMES};

/// A silent connection is questioned by the kernel after this time: a subscriber sends nothing itself
/// and would never learn that its publisher's machine is gone.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(5);

/// Pause between two such questions; a few without an answer end the connection.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(2);

/// What we are to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Listens to a publisher.
    Sub,
    /// Asks a router for a replay.
    Dealer,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Sub => "SUB",
            Self::Dealer => "DEALER",
        }
    }

    fn goes_with(self, peer: &str) -> bool {
        match self {
            Self::Sub => matches!(peer, "PUB" | "XPUB"),
            Self::Dealer => matches!(peer, "ROUTER" | "REP" | "DEALER"),
        }
    }
}

/// Why a connection could not be made or went away.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ZmtpError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("no answer in time")]
    TimedOut,
    #[error("the peer closed the connection")]
    Closed,
    #[error("the peer refuses: {0}")]
    Refused(String),
    #[error(
        "the peer is a {peer} socket, which a {ours} cannot talk to: are the addresses of events and replay swapped?"
    )]
    WrongPeer { ours: &'static str, peer: String },
}

/// Where a peer listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    host: String,
    port: u16,
}

impl Endpoint {
    /// Reads `tcp://host:port`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.strip_prefix("tcp://")?.rsplit_once(':')?;
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        if host.is_empty() || host == "*" {
            return None;
        }
        Some(Self {
            host: host.to_owned(),
            port: port.parse().ok().filter(|port| *port != 0)?,
        })
    }

    /// The same host, so many ports further on: where vLLM puts its other ranks.
    pub(crate) fn for_rank(&self, rank: u32) -> Option<Self> {
        let port = u32::from(self.port).checked_add(rank)?;
        Some(Self {
            host: self.host.clone(),
            port: u16::try_from(port).ok()?,
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tcp://{}:{}", self.host, self.port)
    }
}

/// A connected socket. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    buffer: BytesMut,
    /// Frames of the message that is being received: kept here so that `receive` may be cancelled.
    partial: Vec<Bytes>,
    max_frame_bytes: usize,
}

impl Socket {
    /// Connects and shakes hands.
    pub(crate) async fn connect(
        endpoint: &Endpoint,
        kind: Kind,
        max_frame_bytes: usize,
        within: Duration,
    ) -> Result<Self, ZmtpError> {
        timeout(within, Self::shake_hands(endpoint, kind, max_frame_bytes))
            .await
            .map_err(|_elapsed| ZmtpError::TimedOut)?
    }

    async fn shake_hands(
        endpoint: &Endpoint,
        kind: Kind,
        max_frame_bytes: usize,
    ) -> Result<Self, ZmtpError> {
        let mut stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await?;
        stream.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE_AFTER)
            .with_interval(KEEPALIVE_EVERY);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;

        stream.write_all(&frame::greeting()).await?;
        let mut theirs = [0; GREETING_BYTES];
        stream.read_exact(&mut theirs).await?;
        frame::check_greeting(&theirs)?;

        let mut ready = BytesMut::new();
        frame::put_ready(&mut ready, kind.name());
        stream.write_all(&ready).await?;
        let mut socket = Self {
            stream,
            buffer: BytesMut::new(),
            partial: Vec::new(),
            max_frame_bytes,
        };
        loop {
            let frame = socket.next_frame().await?;
            if !frame.command {
                return Err(FrameError::Command.into());
            }
            match frame::read_command(&frame.body)? {
                Command::Ready(peer) if kind.goes_with(&peer) => return Ok(socket),
                Command::Ready(peer) => {
                    return Err(ZmtpError::WrongPeer {
                        ours: kind.name(),
                        peer,
                    });
                }
                Command::Refused(reason) => return Err(ZmtpError::Refused(reason)),
                Command::Other => {}
            }
        }
    }

    /// Asks for all messages whose topic begins like this.
    pub(crate) async fn subscribe(&mut self, topic: &str) -> Result<(), ZmtpError> {
        const SUBSCRIBE: u8 = 1;
        let mut body = vec![SUBSCRIBE];
        body.extend_from_slice(topic.as_bytes());
        self.send(&[&body]).await
    }

    /// Sends a message of these frames.
    pub(crate) async fn send(&mut self, frames: &[&[u8]]) -> Result<(), ZmtpError> {
        let mut out = BytesMut::new();
        frame::put_message(&mut out, frames);
        Ok(self.stream.write_all(&out).await?)
    }

    /// The next message. May be cancelled without losing anything.
    pub(crate) async fn receive(&mut self) -> Result<Vec<Bytes>, ZmtpError> {
        loop {
            let frame = self.next_frame().await?;
            if frame.command {
                continue;
            }
            if self.partial.len() == MAX_FRAMES {
                return Err(FrameError::TooManyFrames.into());
            }
            self.partial.push(frame.body);
            if !frame.more {
                return Ok(std::mem::take(&mut self.partial));
            }
        }
    }

    async fn next_frame(&mut self) -> Result<frame::Frame, ZmtpError> {
        loop {
            if let Some(frame) = frame::take_frame(&mut self.buffer, self.max_frame_bytes)? {
                return Ok(frame);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(ZmtpError::Closed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_strictly() {
        let shown = |text| Endpoint::parse(text).map(|endpoint| endpoint.to_string());
        assert_eq!(
            shown("tcp://10.0.0.1:5557"),
            Some("tcp://10.0.0.1:5557".into())
        );
        assert_eq!(shown("tcp://[::1]:1").unwrap(), "tcp://::1:1");
        for bad in [
            "tcp://*:5557",
            "ipc:///tmp/x",
            "tcp://host",
            "tcp://host:0",
            "host:1",
            "tcp://:1",
        ] {
            assert_eq!(shown(bad), None, "{bad}");
        }
    }

    #[test]
    fn ranks_listen_on_the_following_ports() {
        let endpoint = Endpoint::parse("tcp://a:65534").unwrap();
        assert_eq!(endpoint.for_rank(1).unwrap().to_string(), "tcp://a:65535");
        assert_eq!(endpoint.for_rank(2), None);
    }

    #[test]
    fn swapped_addresses_are_not_taken_for_silence() {
        assert!(Kind::Sub.goes_with("PUB") && Kind::Dealer.goes_with("ROUTER"));
        assert!(!Kind::Sub.goes_with("ROUTER") && !Kind::Dealer.goes_with("PUB"));
    }
}
