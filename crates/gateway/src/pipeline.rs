//! The way of a request, from top to bottom.
//!
//! ```text
//! receive -> identify -> read -> recall -> its model is served
//! (its id)   (tenant)    (body)  (cache)     here:      validate -> tokenize -> dispatch -> answer
//!                                                       (bounds)    (template)  (engine)    (SSE or JSON)
//!                                            elsewhere: prepare -> begin -> answer
//!                                                       (edits)    (place,  (piece by piece, settled at its end)
//!                                                                   relay)
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
use crate::recall::{Asked, BYPASS, Recollection, from_flight, from_store, recall, source, told};
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

    let asked = async {
        let identified = identify(&gateway, received)?;
        tenant = Some(Arc::clone(&identified.tenant));
        record.enter(&identified.tenant)?;
        read(&gateway, identified).await
    };
    let asked: Result<Read, ApiError> = asked.await;

    let response = match asked {
        Ok(read) => match recall(gateway.recall.as_ref(), route, Asked::from(&read)).await {
            Recollection::Hit(hit) => from_store(hit, record),
            Recollection::Ask(asking) => {
                let mut making = Some((read, record));
                let start = || {
                    let making = making.take();
                    source(async move {
                        match making {
                            Some((read, record)) => make(gateway, route, read, record, true).await,
                            // A request asks once.
                            None => Response::default(),
                        }
                    })
                };
                let answer = asking.answer(start).await;
                from_flight(answer, making.map(|(_, record)| record))
            }
            Recollection::Bypass => told(make(gateway, route, read, record, false).await, BYPASS),
            Recollection::Off => make(gateway, route, read, record, false).await,
        },
        Err(error) => refuse(&error, record),
    };
    let mut response = with_id(response, &id);
    if let Some(tenant) = tenant {
        tell_allowances(&tenant.allowances(Instant::now()), response.headers_mut());
    }
    response
}

/// Makes an answer. One that is to be kept must say what it cost, whether its client wants to know or not.
async fn make(
    gateway: Arc<Gateway>,
    route: Route,
    read: Read,
    mut record: Record,
    is_kept: bool,
) -> Response {
    let begun = async {
        record.reserve(read.likely_tokens())?;
        match read.server {
            Server::Engine(ref own) => begin_here(&Arc::clone(own), route, read, is_kept).await,
            Server::Fleet { model, survey } => {
                let mut prepared = prepare(&gateway, read.identified, model, survey, read.body)?;
                prepared.keeps_usage = is_kept;
                let begun = relay::begin(&gateway.relay, prepared).await?;
                Ok(Begun::Elsewhere(Box::new(begun)))
            }
        }
    };
    let begun: Result<Begun, ApiError> = begun.await;
    match begun {
        Ok(Begun::Here(own, request)) => answer(&own, *request, record).await,
        Ok(Begun::Elsewhere(begun)) => relay::answer(&gateway, *begun, record),
        Ok(Begun::Answered(response)) => {
            record.answered();
            response
        }
        Err(error) => refuse(&error, record),
    }
}

fn refuse(error: &ApiError, mut record: Record) -> Response {
    record.refused(error);
    http_io::refuse(error)
}

/// A request that was taken.
enum Begun {
    Here(Arc<Embedded>, Box<Dispatched>),
    Elsewhere(Box<relay::Begun>),
    Answered(Response),
}

/// The engine's side of the way.
async fn begin_here(
    own: &Arc<Embedded>,
    route: Route,
    read: Read,
    is_kept: bool,
) -> Result<Begun, ApiError> {
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
    let mut validated = validate(own, form, identified, body).await?;
    if let Some(options) = &mut validated.shape.stream {
        options.include_usage |= is_kept;
    }
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
