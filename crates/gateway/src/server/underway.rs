//! Whether anything is under way on a connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes};
use http::{Request, Response};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::service::{Service, service_fn};
use hyper_util::service::TowerToHyperService;

/// Knows what is not finished yet on a connection: requests that are still being read, answers that are still being sent.
#[derive(Clone, Default)]
pub(super) struct Underway {
    /// Every one of them holds it too.
    known: Arc<Known>,
}

#[derive(Default)]
struct Known {
    heard_any: AtomicBool,
    /// Whether a request was answered without being read to its end: what comes next on the connection may be its rest.
    left_unread: AtomicBool,
}

impl Underway {
    /// Whether there was ever a request.
    pub(super) fn heard_any(&self) -> bool {
        self.known.heard_any.load(Ordering::Relaxed)
    }

    /// Whether there were requests, and all of them were read and answered to their ends.
    pub(super) fn is_at_rest(&self) -> bool {
        // A watched service holds it as well.
        self.heard_any()
            && Arc::strong_count(&self.known) <= 2
            && !self.known.left_unread.load(Ordering::Relaxed)
    }

    /// The router as a service that tells this about its requests and answers.
    pub(super) fn watch(
        &self,
        router: Router,
    ) -> impl Service<
        Request<Incoming>,
        Response = Response<Sent>,
        Error = Infallible,
        Future = impl Future<Output = Result<Response<Sent>, Infallible>> + Send + 'static,
    > + 'static {
        let router = TowerToHyperService::new(router);
        let known = Arc::clone(&self.known);
        service_fn(move |request: Request<Incoming>| {
            known.heard_any.store(true, Ordering::Relaxed);
            let known = Arc::clone(&known);
            let answer = router.call(request.map(|body| Read {
                has_ended: body.is_end_stream(),
                body,
                known: Arc::clone(&known),
            }));
            async move {
                let answer = answer.await?;
                Ok(answer.map(|body| Sent {
                    body,
                    _known: known,
                }))
            }
        })
    }
}

/// A request's body, which is under way until it is dropped.
struct Read {
    body: Incoming,
    has_ended: bool,
    known: Arc<Known>,
}

impl HttpBody for Read {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        self.has_ended = matches!(frame, Poll::Ready(None)) || self.body.is_end_stream();
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        if !self.has_ended {
            self.known.left_unread.store(true, Ordering::Relaxed);
        }
    }
}

/// An answer's body, which is under way until it is dropped.
pub(super) struct Sent {
    body: Body,
    _known: Arc<Known>,
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
