//! Bodies: a few bytes, a stream of tokens, or something that never ends.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use super::driver::{Order, Progress};
use super::shape::{self, Shape};
use super::{Answer, Misdeed};

/// The connection is to be closed in the middle.
#[derive(Debug, thiserror::Error)]
#[error("the mock closes the connection, as it was told to")]
pub(super) struct Cut;

/// A place in the machine. Dropping it takes the request out, whether it has its answer or its client left.
pub(super) struct Seat {
    pub(super) id: usize,
    pub(super) orders: mpsc::UnboundedSender<Order>,
    pub(super) progress: mpsc::UnboundedReceiver<Progress>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Leave(self.id));
    }
}

/// A streamed answer.
pub(super) struct TokenStream {
    pub(super) seat: Seat,
    pub(super) shape: Shape,
    pub(super) answer: Arc<Answer>,
    pub(super) sent: usize,
    pub(super) misdeed: Option<Misdeed>,
    /// Whether everything before a cut has been written.
    pub(super) flushed: bool,
    pub(super) ended: bool,
}

impl TokenStream {
    /// What one step of progress adds to the stream.
    fn advance(&mut self, progress: Progress, out: &mut Vec<u8>) {
        match progress {
            Progress::Token => {
                if self.sent == 0 {
                    self.shape.opening(out);
                }
                self.shape.token(out, &self.answer, self.sent);
                self.sent += 1;
            }
            Progress::Finished { cached_tokens } => {
                self.shape.closing(out, &self.answer, cached_tokens);
                self.ended = true;
            }
            Progress::Refused => self.fail(out, "the prompt does not fit into the cache"),
        }
    }

    fn fail(&mut self, out: &mut Vec<u8>, message: &str) {
        protocol::sse::write_event(out, |out| {
            out.extend_from_slice(shape::error(500, message).to_string().as_bytes());
        });
        out.extend_from_slice(protocol::sse::DONE);
        self.ended = true;
    }

    /// The misdeed that is due now.
    fn due(&self) -> Option<Misdeed> {
        self.misdeed.filter(|misdeed| match misdeed {
            Misdeed::CutAfter { tokens }
            | Misdeed::StallAfter { tokens }
            | Misdeed::ErrorEventAfter { tokens } => self.sent >= *tokens,
            _ => false,
        })
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        let mut out = Vec::new();
        while !self.ended {
            match self.due() {
                Some(Misdeed::CutAfter { .. }) if out.is_empty() => {
                    // The connection's buffer is lost with it: let what came before out first.
                    if std::mem::replace(&mut self.flushed, true) {
                        return Poll::Ready(Some(Err(Cut)));
                    }
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Some(Misdeed::ErrorEventAfter { .. }) => self.fail(&mut out, "the engine failed"),
                Some(_) => break,
                None => match self.seat.progress.poll_recv(context) {
                    Poll::Ready(Some(progress)) => self.advance(progress, &mut out),
                    // The machine is gone, and the mock with it.
                    Poll::Ready(None) if out.is_empty() => return Poll::Ready(Some(Err(Cut))),
                    Poll::Ready(None) | Poll::Pending => break,
                },
            }
        }
        match (out.is_empty(), self.ended) {
            (false, _) => Poll::Ready(Some(Ok(Bytes::from(out)))),
            (true, true) => Poll::Ready(None),
            (true, false) => Poll::Pending,
        }
    }
}

/// What the mock's answers carry.
pub(super) enum MockBody {
    Bytes(Option<Bytes>),
    Tokens(Box<TokenStream>),
    /// The same piece for ever.
    Endless(Bytes),
}

impl MockBody {
    pub(super) fn text(text: impl Into<Bytes>) -> Self {
        Self::Bytes(Some(text.into()))
    }
}

impl Body for MockBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            Self::Bytes(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Tokens(stream) => stream
                .poll(context)
                .map(|piece| piece.map(|piece| piece.map(Frame::data))),
            Self::Endless(piece) => Poll::Ready(Some(Ok(Frame::data(piece.clone())))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Bytes(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Tokens(_) | Self::Endless(_) => SizeHint::default(),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Bytes(None))
    }
}

impl From<Infallible> for Cut {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
