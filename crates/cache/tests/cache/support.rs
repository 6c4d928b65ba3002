//! What the tests share: a scripted model server and ways to ask the cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use forespeak_cache as cache;
use futures_util::StreamExt;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use cache::{
    Answer, AnswerBody, Broken, Cache, Directives, Head, Origin, Part, Policy, Recalled, Route,
    Source, Subject,
};

pub(crate) const TENANT: Subject<'static> = Subject {
    tenant: "tenant",
    route: Route::Chat,
    model: "m",
    revision: "1",
    context: None,
    normalise_unicode: false,
};

pub(crate) fn chat(text: &str) -> String {
    json!({"messages": [{"role": "user", "content": text}], "temperature": 0}).to_string()
}

pub(crate) fn streamed(text: &str) -> String {
    json!({"messages": [{"role": "user", "content": text}], "temperature": 0, "stream": true})
        .to_string()
}

/// A model server that counts its generations.
#[derive(Default)]
pub(crate) struct Server {
    pub(crate) generations: AtomicUsize,
}

impl Server {
    pub(crate) fn count(&self) -> usize {
        self.generations.load(Ordering::SeqCst)
    }

    fn next(&self) -> usize {
        self.generations.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// An answer in the form that the request asks for, in steps that let others run.
    pub(crate) fn answer(&self, body: &str) -> Source {
        let number = self.next();
        if body.contains("\"stream\":true") {
            events(number)
        } else {
            whole(number)
        }
    }

    /// An attempt that fails with a status.
    pub(crate) fn refuse(&self, status: StatusCode) -> Source {
        self.next();
        paced(vec![
            Ok(head(status, "application/json")),
            Ok(Part::Data(Bytes::from_static(b"{\"error\":{}}"))),
        ])
    }
}

pub(crate) fn words(number: usize) -> Vec<String> {
    (0..5).map(|word| format!("{number}:{word} ")).collect()
}

pub(crate) fn events(number: usize) -> Source {
    let chunk = |choices: Value, usage: Value| {
        let chunk = json!({"id": format!("c{number}"), "object": "chat.completion.chunk", "created": 7,
                           "model": "m", "choices": choices, "usage": usage});
        Ok(Part::Data(format!("data: {chunk}\n\n").into()))
    };
    let delta = |delta: Value, end: Value| {
        chunk(
            json!([{"index": 0, "delta": delta, "finish_reason": end}]),
            Value::Null,
        )
    };
    let mut parts = vec![
        Ok(head(StatusCode::OK, "text/event-stream")),
        delta(json!({"role": "assistant", "content": ""}), Value::Null),
    ];
    for word in words(number) {
        parts.push(delta(json!({"content": word}), Value::Null));
    }
    parts.push(delta(json!({}), json!("stop")));
    parts.push(chunk(
        json!([]),
        json!({"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}),
    ));
    parts.push(Ok(Part::Data(Bytes::from_static(b"data: [DONE]\n\n"))));
    paced(parts)
}

pub(crate) fn whole(number: usize) -> Source {
    let message = json!({"role": "assistant", "content": words(number).concat()});
    let body = json!({"id": format!("c{number}"), "object": "chat.completion", "created": 7, "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}});
    paced(vec![
        Ok(head(StatusCode::OK, "application/json")),
        Ok(Part::Data(body.to_string().into())),
    ])
}

pub(crate) fn head(status: StatusCode, kind: &'static str) -> Part {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert("x-worker", HeaderValue::from_static("w1"));
    Part::Head(Head { status, headers })
}

/// A source that says nothing before it is released.
pub(crate) fn gated(source: Source) -> (oneshot::Sender<()>, Source) {
    let (release, held) = oneshot::channel();
    let opened = async move {
        let _ = held.await;
        source
    };
    (release, Box::pin(stream::once(opened).flatten()))
}

/// Turns that pass before each part: more than there are clients, each of which takes one by asking.
const TURNS: usize = 300;

/// Parts with a pause before each, in which others may run.
pub(crate) fn paced(parts: Vec<Result<Part, Broken>>) -> Source {
    Box::pin(stream::iter(parts).then(|part| async move {
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
        part
    }))
}

/// What a client saw.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    /// `HIT`, `MISS`, `COALESCED` or `BYPASS`.
    pub(crate) how: &'static str,
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Seen {
    /// The text that the model said, whichever way it came.
    pub(crate) fn text(&self) -> String {
        if let Ok(body) = serde_json::from_str::<Value>(&self.body) {
            return body["choices"][0]["message"]["content"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
        }
        let chunks = self
            .body
            .split("\n\n")
            .filter_map(|event| event.strip_prefix("data: "));
        chunks
            .filter_map(|data| serde_json::from_str::<Value>(data).ok())
            .map(|chunk| {
                chunk["choices"][0]["delta"]["content"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect()
    }
}

pub(crate) async fn ask(cache: &Arc<Cache>, body: &str, start: impl FnOnce() -> Source) -> Seen {
    ask_as(
        cache,
        TENANT,
        Policy::default(),
        Directives::default(),
        body,
        start,
    )
    .await
}

pub(crate) async fn ask_as(
    cache: &Arc<Cache>,
    subject: Subject<'_>,
    policy: Policy,
    directives: Directives,
    body: &str,
    start: impl FnOnce() -> Source,
) -> Seen {
    match cache
        .recall(subject, body.as_bytes(), policy, directives, |_| true)
        .await
    {
        Recalled::Hit(hit) => Seen {
            how: "HIT",
            status: 200,
            body: String::from_utf8(hit.body.to_vec()).unwrap(),
        },
        Recalled::Ask(asking) => match asking.answer(start).await {
            Ok(answer) => read(answer).await,
            Err(Broken) => Seen {
                how: "MISS",
                status: 502,
                body: String::new(),
            },
        },
        Recalled::Bypass(_) => {
            let mut source = start();
            let mut seen = Seen {
                how: "BYPASS",
                status: 0,
                body: String::new(),
            };
            while let Some(Ok(part)) = source.next().await {
                match part {
                    Part::Head(head) => seen.status = head.status.as_u16(),
                    Part::Data(data) => seen.body.push_str(std::str::from_utf8(&data).unwrap()),
                }
            }
            seen
        }
    }
}

async fn read(answer: Answer) -> Seen {
    let how = match answer.origin {
        Origin::Made => "MISS",
        Origin::Shared => "COALESCED",
        Origin::Stored(_) => "HIT",
        Origin::Bypassed(_) => "BYPASS",
    };
    let mut body = Vec::new();
    match answer.body {
        AnswerBody::Whole(whole) => body.extend_from_slice(&whole),
        AnswerBody::Stream(mut stream) => {
            while let Some(Ok(piece)) = stream.next().await {
                body.extend_from_slice(&piece);
            }
        }
    }
    Seen {
        how,
        status: answer.head.status.as_u16(),
        body: String::from_utf8(body).unwrap(),
    }
}

/// Waits until something is so; fails when it takes too long.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while !is_so().await {
        assert!(
            tokio::time::Instant::now() < deadline,
            "not within 20 s: {what}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
