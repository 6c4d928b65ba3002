//! The body of a request on its way to a worker.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use protocol::survey::Pieces;

/// Pieces, one after the other; none is copied.
pub(super) struct Outgoing {
    pieces: std::vec::IntoIter<Bytes>,
    left: u64,
}

impl From<Pieces> for Outgoing {
    fn from(pieces: Pieces) -> Self {
        Self {
            left: pieces.len() as u64,
            pieces: pieces.into_iter(),
        }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.next();
        self.left -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
