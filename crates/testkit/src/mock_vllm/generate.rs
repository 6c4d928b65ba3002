//! The two routes that generate.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Response;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use simulator::rng::Rng;
use simulator::worker::Job;
use tokio::sync::mpsc;

use super::Misdeed;
use super::body::{Cut, MockBody, Seat, TokenStream};
use super::driver::{Order, Progress, Submission};
use super::request::{Asked, Kind, Refusal};
use super::routes::Routes;
use super::shape::{self, Shape};

/// Ids of requests, across all mocks of a process.
static NEXT_ID: AtomicUsize = AtomicUsize::new(0);

impl Routes {
    pub(super) async fn generate(
        &self,
        kind: Kind,
        body: &[u8],
    ) -> Result<Response<MockBody>, Cut> {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let misdeed = self.next_misdeed(id);
        self.books.write(|books| {
            books.received += 1;
            books.misdeeds += u64::from(misdeed.is_some());
        });
        match misdeed {
            Some(Misdeed::Status(status)) => {
                return Ok(refusal((status, "told to refuse".to_owned())));
            }
            Some(Misdeed::Reset) => return Err(Cut),
            Some(Misdeed::Hang) => return std::future::pending().await,
            _ => {}
        }
        let asked = match Asked::read(kind, body, &self.config) {
            Ok(asked) => asked,
            Err(reason) => return Ok(refusal(reason)),
        };
        let shape = Shape::new(&asked, id, &self.config.model);
        let (stream, answer) = (asked.stream, Arc::new(asked.answer.clone()));
        let Some(seat) = self.submit(id, asked) else {
            return Err(Cut);
        };
        let tokens = TokenStream {
            seat,
            shape,
            answer,
            sent: 0,
            misdeed,
            flushed: false,
            ended: false,
        };
        if stream {
            let body = MockBody::Tokens(Box::new(tokens));
            return Ok(answer_with("text/event-stream; charset=utf-8", body));
        }
        collect(tokens).await
    }

    fn next_misdeed(&self, id: usize) -> Option<Misdeed> {
        self.script.next().or_else(|| {
            let (share, misdeed) = self.faults.borrow().misdeed?;
            let chance = Rng::new(self.config.seed ^ id as u64).unit();
            (chance <= share).then_some(misdeed)
        })
    }

    fn submit(&self, id: usize, asked: Asked) -> Option<Seat> {
        let (to, progress) = mpsc::unbounded_channel();
        let (tokens, blocks) = asked.blocks(self.config.worker.block_tokens.max(1) as usize);
        let submission = Submission {
            job: Job {
                id,
                prompt_tokens: asked.tokens.len() as u64,
                output_tokens: asked.answer.tokens.len() as u64,
                blocks,
            },
            tokens: tokens.into(),
            salt: asked.salt,
            stops: asked.answer.finish == "stop",
            to,
        };
        self.jobs.send(Order::Submit(Box::new(submission))).ok()?;
        Some(Seat {
            id,
            orders: self.jobs.clone(),
            progress,
        })
    }
}

/// Waits for the whole answer.
async fn collect(mut tokens: TokenStream) -> Result<Response<MockBody>, Cut> {
    loop {
        match tokens.misdeed {
            Some(Misdeed::CutAfter { tokens: after }) if tokens.sent >= after => return Err(Cut),
            Some(Misdeed::StallAfter { tokens: after }) if tokens.sent >= after => {
                return std::future::pending().await;
            }
            Some(Misdeed::ErrorEventAfter { tokens: after }) if tokens.sent >= after => {
                return Ok(refusal((500, "the engine failed".to_owned())));
            }
            _ => {}
        }
        match tokens.seat.progress.recv().await {
            Some(Progress::Token) => tokens.sent += 1,
            Some(Progress::Finished { cached_tokens }) => {
                let whole = tokens.shape.whole(&tokens.answer, cached_tokens);
                return Ok(answer_with("application/json", MockBody::text(whole)));
            }
            Some(Progress::Refused) => {
                return Ok(refusal((400, "it does not fit into the cache".to_owned())));
            }
            None => return Err(Cut),
        }
    }
}

pub(super) fn refusal((status, message): Refusal) -> Response<MockBody> {
    let body = MockBody::text(shape::error(status, &message).to_string());
    let mut response = answer_with("application/json", body);
    if let Ok(code) = http::StatusCode::from_u16(status) {
        *response.status_mut() = code;
    }
    if matches!(status, 429 | 503) {
        response
            .headers_mut()
            .insert(RETRY_AFTER, http::HeaderValue::from_static("1"));
    }
    response
}

pub(super) fn answer_with(kind: &'static str, body: MockBody) -> Response<MockBody> {
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}
