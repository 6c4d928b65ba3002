//! What a generation becomes for the client: one JSON object, or a stream of events.

mod collect;
mod pieces;
mod stream;

use axum::response::Response;
use protocol::{ApiError, ErrorKind};

use crate::gateway::Embedded;
use crate::record::Record;
use crate::stages::Dispatched;

pub(crate) async fn answer(own: &Embedded, request: Dispatched, mut record: Record) -> Response {
    if request.shape.draft_usage {
        record.tells_drafts();
    }
    record.dispatched(request.prompts.iter().map(|prompt| prompt.length).sum());
    match request.shape.stream {
        None => collect::collect(own, request, record).await,
        Some(options) => stream::stream(own, request, options, record),
    }
}

/// The engine's own words, as a refusal.
fn engine_failure(reason: String) -> ApiError {
    ApiError::new(ErrorKind::Internal, reason)
}
