//! Answers that were given before, and answers that are being given to somebody else right now.
//!
//! ```text
//! recall      what the cache has for a request that was read
//!   hit         given at once
//!   ask         made, for everybody who asks the same: `source` is the rest of the pipeline as the cache sees it
//!   bypass      made as if there were no cache
//! metrics     what the cache counts, under its names
//! ```
//! What is made is kept by the cache itself when it has all been said.

mod metrics;
mod source;

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use cache::{
    Answer, AnswerBody, AnswerStream, Asking, Cache, Directives, Hit, Origin, Recalled, Saved,
    Subject,
};
use futures_util::Stream;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper::body::Frame;
use protocol::{ApiError, ErrorKind, headers};

use crate::http_io;
use crate::record::Record;
use crate::route::Route;
use crate::stages::{Read, Server};
use crate::tenants::Tenant;
pub(crate) use source::source;

/// The response cache and what its hits are worth.
pub(crate) struct Recall {
    pub(crate) cache: Arc<Cache>,
    pub(crate) prices: PriceList,
}

/// What a million tokens cost, in whatever currency the operator counts in.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Prices {
    /// Of prompts.
    pub prompt: f64,
    /// Of answers.
    pub completion: f64,
}

impl Prices {
    /// What tokens that were saved would have cost.
    #[expect(
        clippy::cast_precision_loss,
        reason = "money is not counted in more than 52 bits of tokens"
    )]
    fn cost(self, saved: &Saved) -> f64 {
        let prompt = saved.prompt_tokens as f64 * self.prompt;
        (prompt + saved.completion_tokens as f64 * self.completion) / 1e6
    }
}

/// What tokens cost, by model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PriceList {
    /// Of models that are not in the list.
    pub unless_said: Prices,
    /// Of models, by their own names.
    pub by_model: BTreeMap<String, Prices>,
}

impl PriceList {
    fn of(&self, model: &str) -> Prices {
        self.by_model
            .get(model)
            .copied()
            .unwrap_or(self.unless_said)
    }
}

impl From<Prices> for PriceList {
    fn from(prices: Prices) -> Self {
        Self {
            unless_said: prices,
            by_model: BTreeMap::new(),
        }
    }
}

/// What the cache has for a request.
pub(crate) enum Recollection {
    /// The answer.
    Hit(Hit),
    /// Nothing yet: it has to be made.
    Ask(Asking),
    /// Nothing, and it wants nothing to do with it.
    Bypass,
    /// There is no cache, or not for such requests.
    Off,
}

/// What clients are told.
const HIT: &str = "HIT";
const MISS: &str = "MISS";
const COALESCED: &str = "COALESCED";
pub(crate) const BYPASS: &str = "BYPASS";

/// A request that was read, as far as the cache needs it.
pub(crate) struct Asked<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) server: &'a Server,
    pub(crate) body: &'a [u8],
}

impl<'a> From<&'a Read> for Asked<'a> {
    fn from(read: &'a Read) -> Self {
        Self {
            tenant: &read.identified.tenant,
            headers: &read.identified.request.headers,
            server: &read.server,
            body: &read.body,
        }
    }
}

pub(crate) async fn recall(
    recall: Option<&Recall>,
    route: Route,
    asked: Asked<'_>,
) -> Recollection {
    let Asked {
        tenant, headers, ..
    } = asked;
    let (route, policy) = match route {
        Route::Chat => (cache::Route::Chat, tenant.cache.chat),
        Route::Completions => (cache::Route::Completions, tenant.cache.completions),
        Route::Tokenize | Route::Detokenize | Route::Other(_) => return Recollection::Off,
    };
    let Some(Recall { cache, .. }) = recall else {
        return Recollection::Off;
    };
    let (model, revision) = match asked.server {
        Server::Engine(own) => (own.model.name(), own.model.revision.as_str()),
        Server::Fleet { model, .. } => {
            let name = model.names.first().map_or("", String::as_str);
            (name, model.revision.as_str())
        }
    };
    let subject = Subject {
        tenant: &tenant.name,
        route,
        model,
        revision,
        context: value(headers, headers::CONTEXT),
        normalise_unicode: policy.normalise_unicode,
    };
    let directives = Directives::read(
        value(headers, header::CACHE_CONTROL.as_str()),
        value(headers, headers::CACHE_WISH),
    );
    let may_ask = |name: Option<&str>| tenant.models.allow(name.unwrap_or(model));
    match cache
        .recall(subject, asked.body, policy, directives, may_ask)
        .await
    {
        Recalled::Hit(hit) => Recollection::Hit(hit),
        Recalled::Ask(asking) => Recollection::Ask(asking),
        Recalled::Bypass(_) => Recollection::Bypass,
    }
}

fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Gives what was found.
pub(crate) fn from_store(hit: Hit, mut record: Record) -> Response {
    record.recalled(HIT);
    record.answered();
    let mut response = whole(hit.is_stream, hit.body);
    tell_age(&mut response, hit.age);
    told(response, HIT)
}

/// Gives what was made, for this request or for another; `record` is that of a request that made nothing.
pub(crate) fn from_flight(
    answer: Result<Answer, cache::Broken>,
    record: Option<Record>,
) -> Response {
    let Ok(answer) = answer else {
        return told(broke_off(), MISS);
    };
    let (how, age) = match answer.origin {
        Origin::Made => (MISS, None),
        Origin::Shared => (COALESCED, None),
        Origin::Stored(age) => (HIT, Some(age)),
        Origin::Bypassed(_) => (BYPASS, None),
    };
    let status = answer.head.status;
    let record = record.map(|mut record| {
        record.recalled(how);
        record
    });
    let body = match answer.body {
        AnswerBody::Whole(body) => {
            if let Some(mut record) = record {
                record.shared(status.as_u16());
            }
            Body::from(body)
        }
        AnswerBody::Stream(stream) => Body::new(SharedBody { stream, record }),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = answer.head.headers;
    if let Some(age) = age {
        tell_age(&mut response, age);
    }
    told(response, how)
}

/// Says what the cache did.
pub(crate) fn told(mut response: Response, how: &'static str) -> Response {
    let how = HeaderValue::from_static(how);
    response.headers_mut().insert(headers::CACHE, how);
    response
}

fn tell_age(response: &mut Response, age: Duration) {
    let age = HeaderValue::from(age.as_secs());
    response.headers_mut().insert(header::AGE, age);
}

fn whole(is_stream: bool, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::OK;
    let kind = if is_stream {
        let no_cache = HeaderValue::from_static("no-cache");
        response
            .headers_mut()
            .insert(header::CACHE_CONTROL, no_cache);
        headers::EVENT_STREAM
    } else {
        headers::JSON
    };
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn broke_off() -> Response {
    http_io::refuse(&ApiError::new(
        ErrorKind::Internal,
        "the answer broke off before it began",
    ))
}

/// A body that others read, too.
struct SharedBody {
    stream: AnswerStream,
    /// Of a reader that did not make it.
    record: Option<Record>,
}

impl hyper::body::Body for SharedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let piece = Pin::new(&mut self.stream).poll_next(context);
        piece.map(|piece| match piece {
            Some(Ok(data)) => {
                if let Some(record) = &mut self.record {
                    record.heard();
                }
                Some(Ok(Frame::data(data)))
            }
            Some(Err(broken)) => Some(Err(io::Error::new(io::ErrorKind::UnexpectedEof, broken))),
            None => {
                if let Some(mut record) = self.record.take() {
                    record.answered();
                }
                None
            }
        })
    }
}
