//! The way of a request, from top to bottom.
//!
//! ```text
//! receive -> identify -> validate -> tokenize -> dispatch -> answer
//! (its id)   (tenant)    (bounds)    (template)  (worker)    (SSE or JSON, log line)
//! ```
//! Every stage takes the state that the one before it made, so none can be skipped or swapped. A
//! refusal leaves at once and is told to the client in OpenAI's shape.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, Request};
use protocol::{ApiError, headers};

use crate::answer::answer;
use crate::gateway::Gateway;
use crate::http_io;
use crate::record::{Record, Route};
use crate::stages::{Dispatched, dispatch, identify, receive, tokenize, validate};

/// Answers a request to generate.
pub(crate) async fn generate(
    gateway: Arc<Gateway>,
    route: Route,
    request: Request<Body>,
) -> Response {
    let received = receive(route, request);
    let id = Arc::clone(&received.id);
    let mut record = Record::new(Arc::clone(&gateway), route, Arc::clone(&id));

    let dispatched = async {
        let identified = identify(&gateway, received)?;
        record.identified(&identified.tenant);
        let validated = validate(&gateway, identified).await?;
        let tokenized = tokenize(&gateway, validated).await?;
        dispatch(&gateway, tokenized).await
    };
    let outcome: Result<Dispatched, ApiError> = dispatched.await;

    let response = match outcome {
        Ok(request) => answer(&gateway, request, record).await,
        Err(error) => {
            record.refused(&error);
            http_io::refuse(&error)
        }
    };
    with_id(response, &id)
}

/// The client's name for its request comes back as it was sent, without our prefix.
fn with_id(mut response: Response, id: &str) -> Response {
    let shown = id.split_once('-').map_or(id, |(_, id)| id);
    if let Ok(value) = HeaderValue::from_str(shown) {
        response.headers_mut().insert(headers::REQUEST_ID, value);
    }
    response
}
