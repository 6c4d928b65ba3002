//! An answer as a stream of events, written while it is generated.
//!
//! The body *is* the reader of the generation: no task and no channel stands between the engine's queue
//! and the socket, and everything that is ready becomes one frame and one write. When the client hangs
//! up, hyper drops the body, the body drops the generation, and the engine frees its blocks.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use engine::Update;
use http::header;
use hyper::body::Frame;
use protocol::stream::StreamOptions;
use protocol::{headers, sse};

use super::engine_failure;
use super::pieces::Pieces;
use crate::convert;
use crate::gateway::{Embedded, unix_seconds};
use crate::record::Record;
use crate::stages::{Dispatched, DispatchedPrompt};

/// A frame ends when it has grown to this size, so that one fast stream with many answers does not
/// keep the others waiting.
const FRAME_BYTES: usize = 16 << 10;

/// Room for a chunk without log-probabilities.
const CHUNK_BYTES: usize = 256;

pub(super) fn stream(
    own: &Embedded,
    request: Dispatched,
    options: StreamOptions,
    record: Record,
) -> Response {
    let pieces = Pieces::new(
        request.shape,
        options,
        (&request.id, unix_seconds(), own.model.name()),
        Arc::clone(&own.model.codec),
        (request.prompts.len(), request.n),
    );
    let body = StreamBody {
        prompts: request.prompts.into_iter().map(Some).collect(),
        pieces,
        record,
        ended: false,
    };
    (
        [
            (header::CONTENT_TYPE, headers::EVENT_STREAM),
            (header::CACHE_CONTROL, "no-cache"),
        ],
        Body::new(body),
    )
        .into_response()
}

struct StreamBody {
    /// `None` once a prompt's answers are complete.
    prompts: Vec<Option<DispatchedPrompt>>,
    pieces: Pieces,
    record: Record,
    ended: bool,
}

impl hyper::body::Body for StreamBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let mut out = Vec::with_capacity(CHUNK_BYTES);
        self.render_ready(context, &mut out);
        if out.is_empty() {
            Poll::Pending
        } else {
            Poll::Ready(Some(Ok(Frame::data(out.into()))))
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

impl StreamBody {
    /// Appends everything that is ready. Appends nothing only if every generation will wake `context`.
    fn render_ready(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) {
        for place in 0..self.prompts.len() {
            while out.len() < FRAME_BYTES {
                let Some(Some(prompt)) = self.prompts.get_mut(place) else {
                    break;
                };
                match prompt.generation.poll_recv(context) {
                    Poll::Pending => break,
                    Poll::Ready(None) => {
                        self.prompts[place] = None;
                        break;
                    }
                    Poll::Ready(Some(Update::Failed(reason))) => {
                        self.fail(reason, out);
                        return;
                    }
                    Poll::Ready(Some(update)) => self.render(place, update, out),
                }
            }
        }
        if self.prompts.iter().all(Option::is_none) {
            self.pieces.usage(out, &self.record.usage);
            out.extend_from_slice(sse::DONE);
            self.record.answered();
            self.ended = true;
        }
    }

    fn render(&mut self, place: usize, update: Update, out: &mut Vec<u8>) {
        match update {
            Update::Started {
                cached_tokens,
                prompt: tokens,
            } => {
                self.record.read(cached_tokens);
                if let Some(Some(prompt)) = self.prompts.get(place) {
                    self.pieces
                        .start(out, &self.record.usage, place, prompt, &tokens);
                }
            }
            Update::Delta {
                choice,
                text,
                tokens,
            } => {
                self.record.generated(tokens.len());
                self.pieces.piece(
                    out,
                    &self.record.usage,
                    (place, choice),
                    &text,
                    &tokens,
                    None,
                );
            }
            Update::Finished {
                choice,
                text,
                reason,
                stop,
                drafts,
            } => {
                self.record.drafted(drafts);
                let finish = convert::finish(reason, stop);
                self.pieces.piece(
                    out,
                    &self.record.usage,
                    (place, choice),
                    &text,
                    &[],
                    Some(&finish),
                );
            }
            Update::Failed(_) => {}
        }
    }

    /// Headers are long gone, so the failure is an event; everything else is cancelled.
    fn fail(&mut self, reason: String, out: &mut Vec<u8>) {
        let error = engine_failure(reason);
        sse::write_event(out, |out| out.extend(error.to_json()));
        out.extend_from_slice(sse::DONE);
        self.record.refused(&error);
        self.prompts.clear();
        self.ended = true;
    }
}
