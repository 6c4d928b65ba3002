//! Making an answer that is not there yet: alone, or with others who ask the same.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use protocol::headers;

use crate::cache::{Cache, Hit, Plan};
use crate::entry::{self, Entry};
use crate::fingerprint::Route;
use crate::flight::{Boarded, Broken, Flight, Form, Head, Landed, Passage, Source, View};
use crate::policy::Bypass;
use crate::recording::{Recording, Unfit};
use crate::store::unix_milliseconds;

/// After so many failures of others a request asks for itself.
const MAX_SHARED_FAILURES: usize = 2;

/// Recordings up to this size are made where their last byte was read, in well under a millisecond. Larger ones
/// go to a blocking thread, because the runtime's few workers also carry everybody else's streams.
const NEAR_BYTES: usize = 64 << 10;

/// A question nobody has answered yet.
pub struct Asking {
    cache: Arc<Cache>,
    plan: Arc<Plan>,
}

/// How an answer came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It was made for this request.
    Made,
    /// It was made for somebody who asked first.
    Shared,
    /// It was found in the store after all, so old.
    Stored(Duration),
    /// It was made for this request, and the cache will not keep it.
    Bypassed(Bypass),
}

/// An answer.
pub struct Answer {
    /// How it came about.
    pub origin: Origin,
    /// Status and headers. Of a shared answer only those that describe its body.
    pub head: Head,
    /// The body.
    pub body: AnswerBody,
}

/// The body of an answer.
pub enum AnswerBody {
    /// All of it.
    Whole(Bytes),
    /// Piece by piece.
    Stream(AnswerStream),
}

/// A body piece by piece. Dropping it stops reading; the last reader's leaving cancels the generation.
pub struct AnswerStream(Passage);

impl Stream for AnswerStream {
    type Item = Result<Bytes, Broken>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_data(context)
    }
}

impl Asking {
    pub(crate) fn new(cache: Arc<Cache>, plan: Plan) -> Self {
        let plan = Arc::new(plan);
        Self { cache, plan }
    }

    /// Joins whoever asks the same, or asks: `start` makes the source of the answer. A streamed source must
    /// report its usage in an event of its own, whether the client wants it or not: it is not passed on to those
    /// who do not.
    ///
    /// Dropping the future leaves; whoever else waits for the same answer still gets it.
    pub async fn answer(self, start: impl FnOnce() -> Source) -> Result<Answer, Broken> {
        let wants = self.plan.known.question.wants;
        let flights = &self.cache.flights;
        if !self.plan.permit.read {
            self.cache.counts.missed();
            return self.lead(flights.alone(wants), start(), Origin::Made).await;
        }
        for attempt in 0..=MAX_SHARED_FAILURES {
            if attempt > 0 {
                self.cache.counts.retried();
            }
            match flights.board(self.plan.key, wants) {
                Boarded::Leader(passage) => {
                    // Whoever led before may have landed since we looked.
                    if let Some(hit) = self.cache.look_up_now(&self.plan) {
                        return Ok(stored(hit));
                    }
                    self.cache.counts.missed();
                    return self.lead(passage, start(), Origin::Made).await;
                }
                Boarded::Follower(passage) => {
                    if let Some(answer) = self.follow(passage).await {
                        self.cache.counts.coalesced();
                        return Ok(answer);
                    }
                }
                Boarded::Full => {
                    self.cache.counts.bypassed(Bypass::Crowded);
                    let origin = Origin::Bypassed(Bypass::Crowded);
                    return self.lead(flights.alone(wants), start(), origin).await;
                }
            }
        }
        self.cache.counts.missed();
        self.lead(flights.alone(wants), start(), Origin::Made).await
    }

    /// Brings the source and gives what comes of it, good or bad, as it is.
    async fn lead(
        &self,
        passage: Passage,
        source: Source,
        origin: Origin,
    ) -> Result<Answer, Broken> {
        passage.depart(source, Some(self.keeper()));
        let (head, form) = passage.head().await.ok_or(Broken)?;
        let head = (*head).clone();
        let body = match form {
            Form::Events => AnswerBody::Stream(AnswerStream(passage)),
            Form::Whole | Form::Refusal | Form::Failure => match passage.all().await {
                Some(body) => AnswerBody::Whole(body?),
                None => AnswerBody::Stream(AnswerStream(passage)),
            },
        };
        Ok(Answer { origin, head, body })
    }

    /// Takes part in what somebody else asked for. `None`: nothing came of it.
    async fn follow(&self, passage: Passage) -> Option<Answer> {
        let wants = self.plan.known.question.wants;
        let arrived = passage.arrival(wants.stream).await;
        let (leaders_head, form) = passage.head().await?;
        let shared = |body: AnswerBody, is_stream: bool| {
            Some(Answer {
                origin: Origin::Shared,
                head: plain_head(is_stream),
                body,
            })
        };
        match (arrived, form) {
            (View::Landed, Form::Refusal) => Some(Answer {
                origin: Origin::Shared,
                head: Head {
                    status: leaders_head.status,
                    ..plain_head(false)
                },
                body: AnswerBody::Whole(passage.all().await?.ok()?),
            }),
            (View::Streaming | View::Landed, Form::Events) if wants.stream => {
                shared(AnswerBody::Stream(AnswerStream(passage)), true)
            }
            (View::Landed, Form::Whole) if !wants.stream => {
                shared(AnswerBody::Whole(passage.all().await?.ok()?), false)
            }
            (View::Landed, _) => {
                let recording = passage.flight().recording(self.plan.route).ok()?;
                shared(AnswerBody::Whole(recording.body(wants)?), wants.stream)
            }
            _ => None,
        }
    }

    /// Keeps what a flight carried, and lets others join it until that is done.
    fn keeper(&self) -> Landed {
        let (cache, plan) = (Arc::clone(&self.cache), Arc::clone(&self.plan));
        Box::new(move |flight| {
            let keep = async move {
                match make_recording(&flight, plan.route).await {
                    Ok(recording) => {
                        let others = flight.followers();
                        cache.counts.saved(
                            &plan.model,
                            recording.prompt_tokens.saturating_mul(others),
                            recording.completion_tokens.saturating_mul(others),
                        );
                        keep_answer(&cache, &plan, recording).await;
                    }
                    Err(unfit) => cache.counts.unfit(unfit),
                }
                flight.close();
            };
            tokio::spawn(keep);
        })
    }
}

async fn make_recording(flight: &Arc<Flight>, route: Route) -> Result<Recording, Unfit> {
    if flight.bytes() <= NEAR_BYTES {
        return flight.recording(route).cloned();
    }
    let flight = Arc::clone(flight);
    tokio::task::spawn_blocking(move || flight.recording(route).cloned())
        .await
        .unwrap_or(Err(Unfit::Unreadable))
}

async fn keep_answer(cache: &Cache, plan: &Plan, recording: Recording) {
    if recording.bytes() > plan.policy.max_entry_bytes {
        return cache.counts.unfit(Unfit::TooLarge);
    }
    let created = unix_milliseconds();
    let ttl = u64::try_from(plan.policy.ttl.as_millis()).unwrap_or(u64::MAX);
    let entry = Entry {
        recording,
        created,
        expires: created.saturating_add(ttl),
        stamp: plan.stamp,
    };
    let sealed = entry::seal(&cache.keys, plan.key, &plan.tenant, &entry);
    cache.counts.stored(sealed.len());
    cache.store.put(plan.key, sealed, plan.policy.ttl).await;
}

fn stored(hit: Hit) -> Answer {
    Answer {
        origin: Origin::Stored(hit.age),
        head: plain_head(hit.is_stream),
        body: AnswerBody::Whole(hit.body),
    }
}

fn plain_head(is_stream: bool) -> Head {
    let kind = if is_stream {
        headers::EVENT_STREAM
    } else {
        headers::JSON
    };
    let mut plain = HeaderMap::new();
    plain.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    Head {
        status: StatusCode::OK,
        headers: plain,
    }
}
