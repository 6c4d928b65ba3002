//! Listens to an answer on its way to the client, without taking it apart.
//!
//! Of a stream only whole events go on, so that a worker that dies in the middle of one leaves nothing
//! half-said. An event is looked at with a few searches for fixed bytes: inside a JSON string every quote is
//! escaped, so `"usage":{` can only be a key. Nothing is parsed but the usage itself, once per answer.

mod events;
mod said;
#[cfg(test)]
mod tests;
mod usage;

use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use memchr::memmem::{self, Finder, FinderRev};

use events::{event_length, whole_events};
use said::{Said, listen};
use usage::read_usage;

pub(crate) use said::TextKey;
pub(crate) use usage::Report;

/// The end of an answer in one piece, where the usage stands, is kept to this many bytes.
const TAIL_BYTES: usize = 4 << 10;

const DONE: &[u8] = b"data: [DONE]";
const USAGE: &[u8] = b"\"usage\":";
const NO_CHOICES: &[u8] = b"\"choices\":[]";
const ERROR: &[u8] = b"data: {\"error\"";
const OBJECT_ERROR: &[u8] = b"data: {\"object\":\"error\"";
const BLAMES_CLIENT: [&[u8]; 2] = [b"\"code\":4", b"\"code\": 4"];

// Looked for in every event, so made once.
static USAGE_OBJECT: LazyLock<FinderRev<'static>> =
    LazyLock::new(|| FinderRev::new(b"\"usage\":{"));
static FINISHED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"finish_reason\":\""));

/// Whose failure an event in a stream tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A 4xx in all but name.
    OfClient,
    OfWorker,
}

/// What kind of answer it is.
#[derive(Debug)]
enum Form {
    /// Events.
    Stream {
        /// Bytes after the last whole event.
        begun: BytesMut,
        /// The client did not ask for the usage; we did.
        hide_usage: bool,
        said: Option<Said>,
    },
    /// One piece; its end.
    Whole(Vec<u8>),
}

/// Listens to one answer.
#[derive(Debug)]
pub(crate) struct Tap {
    form: Form,
    report: Report,
    /// Events that carried something.
    events: u64,
    /// Choices that have come to their end.
    finished: u64,
    is_done: bool,
    failure: Option<Failure>,
    /// Tokens that earlier workers said, whose answer is being continued.
    before: u64,
}

impl Tap {
    /// For a stream. With a key, its text is kept for a continuation.
    pub(crate) fn of_stream(hide_usage: bool, keep: Option<TextKey>) -> Self {
        let said = keep.map(Said::under);
        Self::new(Form::Stream {
            begun: BytesMut::new(),
            hide_usage,
            said,
        })
    }

    /// For an answer in one piece.
    pub(crate) fn of_whole() -> Self {
        Self::new(Form::Whole(Vec::new()))
    }

    fn new(form: Form) -> Self {
        Self {
            form,
            report: Report::default(),
            events: 0,
            finished: 0,
            is_done: false,
            failure: None,
            before: 0,
        }
    }

    /// What the answer has said about itself.
    pub(crate) fn report(&self) -> Report {
        self.report
    }

    /// Tokens so far, as far as can be told: those of earlier workers, and the pieces of this one.
    pub(crate) fn tokens(&self) -> u64 {
        self.before + self.events
    }

    /// Choices that have come to their end.
    pub(crate) fn finished(&self) -> u64 {
        self.finished
    }

    /// Whether the stream has said that it is over.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// The failure that the worker itself has told of.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// The text so far, if it was kept and nothing else was said.
    pub(crate) fn said(&self) -> Option<&[u8]> {
        match &self.form {
            Form::Stream {
                said: Some(said), ..
            } => Some(&said.text),
            _ => None,
        }
    }

    /// Another worker takes over: what was begun is forgotten, what was said is kept. It was `tokens` long.
    pub(crate) fn resume(&mut self, tokens: u64) {
        self.before = tokens;
        self.events = 0;
        if let Form::Stream { begun, .. } = &mut self.form {
            begun.clear();
        }
    }

    /// Takes the next piece and gives what may go to the client.
    pub(crate) fn pass(&mut self, piece: Bytes) -> Bytes {
        match &mut self.form {
            Form::Whole(tail) => {
                let from = piece.len().saturating_sub(TAIL_BYTES);
                tail.extend_from_slice(piece.get(from..).unwrap_or_default());
                let surplus = tail.len().saturating_sub(TAIL_BYTES);
                tail.drain(..surplus);
                piece
            }
            Form::Stream { begun, .. } => match whole_events(begun, piece) {
                Some(events) => self.pass_events(events),
                None => Bytes::new(),
            },
        }
    }

    /// The answer is over; gives what was held back, if it is not too late for it.
    pub(crate) fn end(&mut self) -> Bytes {
        match &mut self.form {
            Form::Whole(tail) => {
                if let Some(at) = memmem::rfind(tail, USAGE) {
                    let written = tail.get(at + USAGE.len()..).unwrap_or_default();
                    if let Some((usage, _)) = read_usage(written) {
                        self.report = usage;
                    }
                }
                Bytes::new()
            }
            // Some servers forget the empty line at the end.
            Form::Stream { begun, .. } if begun.starts_with(DONE) => {
                self.is_done = true;
                begun.extend_from_slice(b"\n\n");
                begun.split().freeze()
            }
            Form::Stream { .. } => Bytes::new(),
        }
    }

    fn pass_events(&mut self, events: Bytes) -> Bytes {
        let mut changed: Option<BytesMut> = None;
        let mut at = 0;
        while let Some(length) = event_length(events.get(at..).unwrap_or_default()) {
            let event = events.slice(at..at + length);
            let shown = self.look(&event);
            if shown.as_ptr() != event.as_ptr() || shown.len() != event.len() {
                changed.get_or_insert_with(|| BytesMut::from(events.get(..at).unwrap_or_default()));
            }
            if let Some(changed) = &mut changed {
                changed.extend_from_slice(&shown);
            }
            at += length;
        }
        changed.map_or(events, BytesMut::freeze)
    }

    /// Looks at one event and gives what the client is to see of it.
    fn look(&mut self, event: &Bytes) -> Bytes {
        let Form::Stream {
            hide_usage, said, ..
        } = &mut self.form
        else {
            return event.clone();
        };
        if event.starts_with(DONE) {
            self.is_done = true;
            return event.clone();
        }
        if event.starts_with(ERROR) || event.starts_with(OBJECT_ERROR) {
            let blames = |mark: &&[u8]| memmem::find(event, mark).is_some();
            self.failure = Some(if BLAMES_CLIENT.iter().any(blames) {
                Failure::OfClient
            } else {
                Failure::OfWorker
            });
            return event.clone();
        }
        if !event.starts_with(b"data:") {
            return event.clone();
        }
        let found = USAGE_OBJECT.rfind(event);
        let usage = found.and_then(|at| {
            let written = event.get(at + USAGE.len()..)?;
            read_usage(written).map(|(usage, length)| (at + USAGE.len(), length, usage))
        });
        if usage.is_none() || memmem::find(event, NO_CHOICES).is_none() {
            let finished = FINISHED.find_iter(event).count() as u64;
            self.finished += finished;
            let says_nothing = listen(said, event);
            if self.before > 0 && self.events == 0 && says_nothing && finished == 0 {
                // The next worker opens its answer anew; the client has heard that.
                return Bytes::new();
            }
            self.events += u64::from(!says_nothing);
        }
        let Some((at, length, mut usage)) = usage else {
            return event.clone();
        };
        usage.add_before(self.before);
        self.report = usage;
        if *hide_usage && memmem::find(event, NO_CHOICES).is_some() {
            return Bytes::new();
        }
        if self.before == 0 {
            return event.clone();
        }
        let mut corrected = event.get(..at).unwrap_or_default().to_vec();
        usage.write(&mut corrected);
        corrected.extend_from_slice(event.get(at + length..).unwrap_or_default());
        corrected.into()
    }
}
