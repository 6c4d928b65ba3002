//! The way of a request, from top to bottom.
//!
//! ```text
//! receive -> identify -> read -> its model is served
//! (its id)   (tenant)    (body)    here:      validate -> tokenize -> dispatch -> answer
//!                                             (bounds)    (template)  (engine)    (SSE or JSON)
//!                                  elsewhere: prepare -> begin -> answer
//!                                             (edits)    (place,  (piece by piece, settled at its end)
//!                                                         relay)
//! ```
//! Every stage takes the state that the one before it made, so none can be skipped or swapped. A
//! refusal leaves at once and is told to the client in OpenAI's shape. However a request ends, its
//! [`Record`] writes one log line.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, Request};
use protocol::{ApiError, headers};

use crate::answer::answer;
use crate::gateway::{Embedded, Gateway};
use crate::http_io;
use crate::record::Record;
use crate::relay;
use crate::route::Route;
use crate::routes::{detokenize, no_such_path, tokenize as tokenize_for};
use crate::stages::{
    Dispatched, Form, Read, Server, dispatch, identify, prepare, read, receive, tokenize, validate,
};
use crate::tenants::tell_allowances;

/// Answers a request.
pub(crate) async fn serve(gateway: Arc<Gateway>, route: Route, request: Request<Body>) -> Response {
    let received = receive(route, request);
    let id = Arc::clone(&received.id);
    let mut record = Record::new(Arc::clone(&gateway), route, Arc::clone(&id));
    let mut tenant = None;

    let begun = async {
        let identified = identify(&gateway, received)?;
        tenant = Some(Arc::clone(&identified.tenant));
        record.enter(&identified.tenant)?;
        let read = read(&gateway, identified).await?;
        record.reserve(read.likely_tokens())?;
        match read.server {
            Server::Engine(ref own) => begin_here(&Arc::clone(own), route, read).await,
            Server::Fleet { model, survey } => {
                let prepared = prepare(&gateway, read.identified, model, survey, read.body)?;
                let begun = relay::begin(&gateway.relay, prepared).await?;
                Ok(Begun::Elsewhere(Box::new(begun)))
            }
        }
    };
    let begun: Result<Begun, ApiError> = begun.await;

    let response = match begun {
        Ok(Begun::Here(own, request)) => answer(&own, *request, record).await,
        Ok(Begun::Elsewhere(begun)) => relay::answer(&gateway, *begun, record),
        Ok(Begun::Answered(response)) => {
            record.answered();
            response
        }
        Err(error) => {
            record.refused(&error);
            http_io::refuse(&error)
        }
    };
    let mut response = with_id(response, &id);
    if let Some(tenant) = tenant {
        tell_allowances(&tenant.allowances(Instant::now()), response.headers_mut());
    }
    response
}

/// A request that was taken.
enum Begun {
    Here(Arc<Embedded>, Box<Dispatched>),
    Elsewhere(Box<relay::Begun>),
    Answered(Response),
}

/// The engine's side of the way.
async fn begin_here(own: &Arc<Embedded>, route: Route, read: Read) -> Result<Begun, ApiError> {
    let Read {
        identified, body, ..
    } = read;
    let form = match route {
        Route::Chat => Form::Chat,
        Route::Completions => Form::Completions,
        Route::Tokenize => {
            let answer = tokenize_for(own, &identified.tenant, body).await?;
            return Ok(Begun::Answered(http_io::json(&answer)));
        }
        Route::Detokenize => {
            let answer = detokenize(own, &identified.tenant, &body)?;
            return Ok(Begun::Answered(http_io::json(&answer)));
        }
        Route::Other(path) => return Err(no_such_path(path)),
    };
    let validated = validate(own, form, identified, body).await?;
    let tokenized = tokenize(own, validated).await?;
    let dispatched = dispatch(own, tokenized).await?;
    Ok(Begun::Here(Arc::clone(own), Box::new(dispatched)))
}

/// The client's name for its request comes back as it was sent, without our prefix.
fn with_id(mut response: Response, id: &str) -> Response {
    let shown = id.split_once('-').map_or(id, |(_, id)| id);
    if let Ok(value) = HeaderValue::from_str(shown) {
        response.headers_mut().insert(headers::REQUEST_ID, value);
    }
    response
}
