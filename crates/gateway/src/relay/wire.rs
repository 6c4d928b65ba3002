//! One connection to a worker.
//!
//! hyper's connection is driven by whoever waits for the answer, in the same task, instead of a task of
//! its own. A piece of a stream then costs one wake-up, not two with a channel between them; nothing is
//! read from the worker that the client does not take; and dropping the wire closes the socket there and
//! then, which is how vLLM learns that nobody waits any more.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use fleet::{Fault, WorkerUrl};
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use tokio::net::TcpStream;

use super::outgoing::Outgoing;

/// The most bytes that are read ahead of the client.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// The port of a worker that names none.
const HTTP_PORT: u16 = 80;

/// Why an exchange failed.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) fault: Fault,
    pub(super) why: String,
}

impl Broken {
    pub(super) fn new(fault: Fault, why: impl ToString) -> Self {
        Self {
            fault,
            why: why.to_string(),
        }
    }
}

/// Why there is no connection to a worker.
#[derive(Debug)]
pub(super) enum NotOpened {
    /// The worker's fault.
    Broken(Broken),
    /// Ours: no file descriptor is left.
    NoDescriptors(std::io::Error),
}

impl From<Broken> for NotOpened {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

/// Whether this process, or its machine, has as many files open as it may.
fn is_want_of_descriptors(error: &std::io::Error) -> bool {
    let wants = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error
        .raw_os_error()
        .is_some_and(|code| wants.contains(&code))
}

impl From<hyper::Error> for Broken {
    fn from(error: hyper::Error) -> Self {
        let fault = if error.is_parse() {
            Fault::Garbled
        } else {
            Fault::Reset
        };
        Self::new(fault, error)
    }
}

type Driven = Connection<TokioIo<TcpStream>, Outgoing>;

/// A connection to a worker, in use or idle.
pub(super) struct Wire {
    sender: SendRequest<Outgoing>,
    /// `None` when it has ended.
    connection: Option<Pin<Box<Driven>>>,
}

impl Wire {
    /// Connects.
    pub(super) async fn open(url: &WorkerUrl, within: Duration) -> Result<Self, NotOpened> {
        let connecting = async {
            let stream = if url.port().is_some() {
                TcpStream::connect(url.authority()).await
            } else {
                let host = url.host().trim_matches(['[', ']']);
                TcpStream::connect((host, HTTP_PORT)).await
            }?;
            stream.set_nodelay(true)?;
            Ok::<_, std::io::Error>(stream)
        };
        let stream = match tokio::time::timeout(within, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) if is_want_of_descriptors(&error) => {
                return Err(NotOpened::NoDescriptors(error));
            }
            Ok(Err(error)) => return Err(Broken::new(Fault::Unreachable, error).into()),
            Err(_) => return Err(Broken::new(Fault::Unreachable, "no connection in time").into()),
        };
        let mut builder = http1::Builder::new();
        builder.max_buf_size(READ_BUFFER_BYTES);
        let handshake = builder.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(Broken::from)?;
        Ok(Self {
            sender,
            connection: Some(Box::pin(connection)),
        })
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Outgoing>,
    ) -> Result<Response<Incoming>, Broken> {
        let mut answer = Box::pin(self.sender.send_request(request));
        let connection = &mut self.connection;
        poll_fn(|cx| {
            drive(connection, cx);
            answer.as_mut().poll(cx)
        })
        .await
        .map_err(Broken::from)
    }

    /// The next piece of an answer that came over this wire.
    pub(super) fn poll_piece(
        &mut self,
        answer: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Broken>>> {
        // Pieces come only while the connection is driven, which happens here: nobody else has to wake us.
        let mut quiet = Context::from_waker(Waker::noop());
        let mut is_driven = false;
        loop {
            match Pin::new(&mut *answer).poll_frame(&mut quiet) {
                Poll::Ready(Some(Ok(frame))) => {
                    // Trailers are of no use to us.
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending if !is_driven => {
                    drive(&mut self.connection, cx);
                    is_driven = true;
                }
                Poll::Pending if self.connection.is_some() => return Poll::Pending,
                Poll::Pending => {
                    let closed = Broken::new(Fault::Reset, "the connection was closed");
                    return Poll::Ready(Some(Err(closed)));
                }
            }
        }
    }

    /// Whether another request can be sent: the last answer has ended and nobody has hung up.
    pub(super) fn is_reusable(&mut self) -> bool {
        drive(
            &mut self.connection,
            &mut Context::from_waker(Waker::noop()),
        );
        self.connection.is_some() && self.sender.is_ready()
    }
}

/// Lets the connection read and write what it can. How it ends is told to the answer that it carries.
fn drive(connection: &mut Option<Pin<Box<Driven>>>, cx: &mut Context<'_>) {
    if let Some(running) = connection
        && running.as_mut().poll(cx).is_ready()
    {
        *connection = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_want_of_descriptors_is_no_fault_of_a_worker() {
        for (error, is_ours) in [
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::CONNREFUSED, false),
        ] {
            let error = io::Error::from_raw_os_error(error.raw_os_error());
            assert_eq!(is_want_of_descriptors(&error), is_ours, "{error}");
        }
        let timed_out = io::Error::from(io::ErrorKind::TimedOut);
        assert!(!is_want_of_descriptors(&timed_out));
    }
}
