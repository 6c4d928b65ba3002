//! The rest of the pipeline as the cache sees it: a head, then a body.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::Response;
use cache::{Broken, Head, Part, Source};
use futures_util::Stream;
use hyper::body::Body as _;

/// Makes an answer when it is polled, not before.
pub(crate) fn source(making: impl Future<Output = Response> + Send + 'static) -> Source {
    Box::pin(Pipeline::Making(Box::pin(making)))
}

enum Pipeline {
    Making(Pin<Box<dyn Future<Output = Response> + Send>>),
    Saying(Body),
}

impl Stream for Pipeline {
    type Item = Result<Part, Broken>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Part, Broken>>> {
        let this = &mut *self;
        loop {
            match this {
                Self::Making(making) => {
                    let (head, body) = ready!(making.as_mut().poll(context)).into_parts();
                    *this = Self::Saying(body);
                    return Poll::Ready(Some(Ok(Part::Head(Head {
                        status: head.status,
                        headers: head.headers,
                    }))));
                }
                Self::Saying(body) => match ready!(Pin::new(body).poll_frame(context)) {
                    None => return Poll::Ready(None),
                    Some(Err(_)) => return Poll::Ready(Some(Err(Broken))),
                    // There are no trailers in what we make.
                    Some(Ok(frame)) => {
                        if let Ok(data) = frame.into_data() {
                            return Poll::Ready(Some(Ok(Part::Data(data))));
                        }
                    }
                },
            }
        }
    }
}
