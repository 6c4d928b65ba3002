//! Sending a request and reading its answer.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::events::{Scanner, Seen, Usage, shorten, usage_of};
use super::pool::{Pool, Sender};
use crate::record::Outcome;

/// How long to wait, and when to leave.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For everything.
    pub timeout: Duration,
    /// Leave after so many chunks with text.
    pub leave_after: Option<u32>,
    /// Whether the text is wanted.
    pub keep_text: bool,
}

/// What came.
#[derive(Debug)]
pub struct Answered {
    /// How it ended.
    pub outcome: Outcome,
    /// The HTTP status.
    pub status: Option<u16>,
    /// When the first text came.
    pub first: Option<Instant>,
    /// When it ended.
    pub ended: Instant,
    /// Between chunks with text, in seconds.
    pub gaps: Vec<f32>,
    pub(crate) usage: Option<Usage>,
    /// The text, if it was wanted.
    pub text: String,
    /// What the server said when it failed.
    pub error: Option<String>,
}

impl Answered {
    fn new() -> Self {
        Self {
            outcome: Outcome::Incomplete,
            status: None,
            first: None,
            ended: Instant::now(),
            gaps: Vec::new(),
            usage: None,
            text: String::new(),
            error: None,
        }
    }

    fn failed(mut self, outcome: Outcome, reason: impl ToString) -> Self {
        self.outcome = outcome;
        self.error = Some(reason.to_string());
        self.ended = Instant::now();
        self
    }
}

/// Sends a body to a path, or asks for the path if there is none, and reads the answer to its end.
pub async fn send(
    pool: &Pool,
    path: &str,
    key: Option<&str>,
    body: Bytes,
    limits: Limits,
) -> Answered {
    let deadline = Instant::now() + limits.timeout;
    match timeout_at(deadline, exchange(pool, path, key, body, limits)).await {
        Ok(answered) => answered,
        Err(_) => Answered::new().failed(Outcome::Timeout, "no end in time"),
    }
}

async fn exchange(
    pool: &Pool,
    path: &str,
    key: Option<&str>,
    body: Bytes,
    limits: Limits,
) -> Answered {
    let answered = Answered::new();
    let request = match request(pool, path, key, body) {
        Ok(request) => request,
        Err(error) => return answered.failed(Outcome::Connect, error),
    };
    let mut sender = match pool.take().await {
        Ok(sender) => sender,
        Err(error) => return answered.failed(Outcome::Connect, error),
    };
    let response = match sender.send(request).await {
        Ok(response) => response,
        Err(error) => return answered.failed(Outcome::Reset, error),
    };
    let answered = read(response, answered, limits).await;
    if !matches!(answered.outcome, Outcome::Cancelled | Outcome::Cut) {
        keep(pool, sender).await;
    }
    answered
}

/// A connection is free once its body was read, which hyper notices a moment later.
async fn keep(pool: &Pool, mut sender: Sender) {
    if sender.ready().await.is_ok() {
        pool.give_back(sender);
    }
}

fn request(
    pool: &Pool,
    path: &str,
    key: Option<&str>,
    body: Bytes,
) -> Result<Request<Full<Bytes>>, http::Error> {
    let method = if body.is_empty() {
        Method::GET
    } else {
        Method::POST
    };
    let mut request = Request::builder()
        .method(method)
        .uri(pool.uri(path))
        .header(CONTENT_TYPE, "application/json");
    if let Some(host) = pool.host() {
        request = request.header(HOST, host);
    }
    if let Some(key) = key {
        request = request.header(AUTHORIZATION, format!("Bearer {key}"));
    }
    request.body(Full::new(body))
}

async fn read(response: Response<Incoming>, mut answered: Answered, limits: Limits) -> Answered {
    let status = response.status().as_u16();
    answered.status = Some(status);
    let streams = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    if status == 200 && streams {
        return stream(response.into_body(), answered, limits).await;
    }
    let body = match whole(response.into_body()).await {
        Ok(body) => body,
        Err(error) => return answered.failed(Outcome::Cut, error),
    };
    answered.ended = Instant::now();
    answered.outcome = match status {
        200 => Outcome::Ok,
        429 => Outcome::TooManyRequests,
        503 => Outcome::Unavailable,
        400..=499 => Outcome::ClientError,
        _ => Outcome::ServerError,
    };
    if answered.outcome != Outcome::Ok {
        answered.error = Some(shorten(&body));
        return answered;
    }
    answered.first = Some(answered.ended);
    answered.usage = usage_of(&body);
    if limits.keep_text {
        // What has no choices is not an answer, but a page that somebody asked for.
        answered.text = match text_of(&body) {
            text if text.is_empty() => String::from_utf8_lossy(&body).into_owned(),
            text => text,
        };
    }
    answered
}

async fn whole(mut body: Incoming) -> Result<Bytes, hyper::Error> {
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame?.data_ref() {
            all.extend_from_slice(data);
        }
    }
    Ok(all.freeze())
}

async fn stream(mut body: Incoming, mut answered: Answered, limits: Limits) -> Answered {
    let (mut scanner, mut seen) = (Scanner::default(), Seen::default());
    let mut last = None;
    while let Some(frame) = body.frame().await {
        // Before anything is looked at.
        let now = Instant::now();
        let data = match frame.map(hyper::body::Frame::into_data) {
            Ok(Ok(data)) => data,
            Ok(Err(_)) => continue,
            Err(error) => return answered.failed(Outcome::Cut, error),
        };
        let before = seen.chunks;
        let text = &mut answered.text;
        scanner.push(&data, |data| {
            seen.add(data);
            if limits.keep_text {
                text.push_str(&text_of(data));
            }
        });
        for _ in before..seen.chunks {
            match last.replace(now) {
                None => answered.first = Some(now),
                Some(last) => answered.gaps.push((now - last).as_secs_f32()),
            }
        }
        if limits
            .leave_after
            .is_some_and(|chunks| seen.chunks >= chunks)
            && !seen.done
        {
            return answered.failed(Outcome::Cancelled, "left on purpose");
        }
    }
    answered.ended = Instant::now();
    answered.usage = seen.usage;
    answered.outcome = match (&seen.error, seen.done) {
        (Some(_), _) => Outcome::ErrorEvent,
        (None, true) => Outcome::Ok,
        (None, false) => Outcome::Incomplete,
    };
    answered.error = seen.error;
    answered
}

/// The text of a chunk or of a whole answer.
fn text_of(json: &[u8]) -> String {
    let Ok(answer) = serde_json::from_slice::<serde_json::Value>(json) else {
        return String::new();
    };
    let choice = &answer["choices"][0];
    [
        &choice["delta"]["content"],
        &choice["message"]["content"],
        &choice["text"],
    ]
    .into_iter()
    .find_map(|text| text.as_str())
    .unwrap_or_default()
    .to_owned()
}
