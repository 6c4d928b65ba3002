//! Connections, kept open between requests. For one thread.

use std::cell::RefCell;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::BenchError;

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Host and port.
    pub authority: String,
    /// What stands before `/v1`.
    pub prefix: String,
}

impl Address {
    /// Out of a base URL.
    ///
    /// # Errors
    /// If it is not `http://host[:port][/prefix]`.
    pub fn parse(url: &str) -> Result<Self, BenchError> {
        let bad = || BenchError::Url(url.to_owned());
        let uri: http::Uri = url.parse().map_err(|_| bad())?;
        let host = uri.host().filter(|_| uri.scheme_str() == Some("http"));
        let host = host.ok_or_else(bad)?;
        let prefix = uri.path().trim_end_matches('/');
        Ok(Self {
            authority: format!("{host}:{}", uri.port_u16().unwrap_or(80)),
            prefix: prefix.strip_suffix("/v1").unwrap_or(prefix).to_owned(),
        })
    }
}

/// Requests that share a connection of HTTP/2: fewer than the hundred that most servers allow.
const SHARED_BY: usize = 100;

/// A place on a connection that can take a request.
pub(crate) enum Sender {
    Alone(http1::SendRequest<Full<Bytes>>),
    Shared(http2::SendRequest<Full<Bytes>>),
}

impl Sender {
    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::Alone(sender) => sender.send_request(request).await,
            Self::Shared(sender) => sender.send_request(request).await,
        }
    }

    /// Waits until the next request can be sent.
    pub(crate) async fn ready(&mut self) -> hyper::Result<()> {
        match self {
            Self::Alone(sender) => sender.ready().await,
            Self::Shared(sender) => sender.ready().await,
        }
    }

    fn is_ready(&self) -> bool {
        match self {
            Self::Alone(sender) => sender.is_ready(),
            Self::Shared(sender) => sender.is_ready(),
        }
    }
}

/// Open connections to one address.
pub struct Pool {
    address: Address,
    http2: bool,
    idle: RefCell<Vec<Sender>>,
}

impl Pool {
    /// None yet. With `http2`, a hundred requests share a connection.
    pub fn new(address: Address, http2: bool) -> Self {
        Self {
            address,
            http2,
            idle: RefCell::default(),
        }
    }

    /// A path as a request line has it, or with the authority that HTTP/2 puts beside it.
    pub(crate) fn uri(&self, path: &str) -> String {
        let Address { authority, prefix } = &self.address;
        if self.http2 {
            format!("http://{authority}{prefix}{path}")
        } else {
            format!("{prefix}{path}")
        }
    }

    /// The header that only HTTP/1 needs.
    pub(crate) fn host(&self) -> Option<&str> {
        (!self.http2).then_some(&self.address.authority)
    }

    /// The one used last, or a new one. Must run inside a `LocalSet`.
    pub(crate) async fn take(&self) -> Result<Sender, String> {
        while let Some(sender) = self.pop() {
            if sender.is_ready() {
                return Ok(sender);
            }
        }
        let stream = TcpStream::connect(&self.address.authority)
            .await
            .map_err(|error| error.to_string())?;
        stream
            .set_nodelay(true)
            .map_err(|error| error.to_string())?;
        if self.http2 {
            self.share(stream).await
        } else {
            let (sender, connection) = http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|error| error.to_string())?;
            // Its errors are those of the request that it carries.
            tokio::task::spawn_local(async move { drop(connection.await) });
            Ok(Sender::Alone(sender))
        }
    }

    /// Opens a connection for many; all but one place of it wait for the next.
    async fn share(&self, stream: TcpStream) -> Result<Sender, String> {
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        tokio::task::spawn_local(async move { drop(connection.await) });
        let places = std::iter::repeat_n(&sender, SHARED_BY - 1).cloned();
        self.idle.borrow_mut().extend(places.map(Sender::Shared));
        Ok(Sender::Shared(sender))
    }

    /// For the next one.
    pub(crate) fn give_back(&self, sender: Sender) {
        self.idle.borrow_mut().push(sender);
    }

    fn pop(&self) -> Option<Sender> {
        self.idle.borrow_mut().pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_with_and_without_v1_mean_the_same() {
        let address = Address::parse("http://127.0.0.1:8080/v1/").unwrap();
        assert_eq!(address, Address::parse("http://127.0.0.1:8080").unwrap());
        assert_eq!(Address::parse("http://host/a").unwrap().prefix, "/a");
        assert!(Address::parse("https://host").is_err());
        assert!(Address::parse("host:80").is_err());
    }
}
