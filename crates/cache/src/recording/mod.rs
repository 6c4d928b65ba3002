//! An answer that can be given again, as events or in one piece, whichever way it was given first.
//!
//! Both forms are made when the answer is recorded, so that giving it again is copying bytes. A form that
//! cannot be made without guessing (a field nobody knows) is left out: who asks for it, asks the model.

mod assemble;
mod event;
mod head;
mod outline;
mod take_apart;

use bytes::Bytes;

use crate::fingerprint::{Route, Wants};
use assemble::Assembly;
pub(crate) use event::{Event, EventKind, Splitter};

/// An answer in the forms in which it can be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recording {
    /// In one piece, its usage saying that the whole prompt was cached.
    pub(crate) json: Option<Bytes>,
    /// All events but the usage and the closing one.
    pub(crate) events: Option<Bytes>,
    /// The usage as an event.
    pub(crate) usage_event: Bytes,
    pub(crate) prompt_tokens: u64,
    pub(crate) completion_tokens: u64,
}

/// Why an answer is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unfit {
    /// It broke off, or an error came instead of its end.
    Incomplete,
    /// A choice ended otherwise than by itself, by a stop, by a call or by the length that was asked for.
    Filtered,
    /// It does not say what it cost.
    NoUsage,
    /// It is not what such an answer looks like.
    Unreadable,
    /// It is larger than the policy allows.
    TooLarge,
}

impl Unfit {
    /// All labels, for those who export them.
    pub const LABELS: [&str; 5] = [
        "incomplete",
        "filtered",
        "no_usage",
        "unreadable",
        "too_large",
    ];

    pub(crate) fn place(self) -> usize {
        match self {
            Self::Incomplete => 0,
            Self::Filtered => 1,
            Self::NoUsage => 2,
            Self::Unreadable => 3,
            Self::TooLarge => 4,
        }
    }
}

impl Recording {
    /// Records an answer that came as events.
    pub(crate) fn of_events(route: Route, events: &[Event]) -> Result<Self, Unfit> {
        let Some((last, events)) = events.split_last() else {
            return Err(Unfit::Incomplete);
        };
        if last.kind != EventKind::Done {
            return Err(Unfit::Incomplete);
        }
        let mut assembly = Assembly::new(route);
        let mut kept = Vec::with_capacity(events.iter().map(|event| event.bytes.len()).sum());
        for event in events {
            match event.kind {
                EventKind::Comment => {}
                EventKind::Error | EventKind::Done => return Err(Unfit::Incomplete),
                EventKind::Usage => assembly.chunk(event.data())?,
                EventKind::Chunk => {
                    assembly.chunk(event.data())?;
                    kept.extend_from_slice(&event.without_usage());
                }
            }
        }
        let answer = assembly.finish()?;
        Ok(Self {
            json: answer.json.map(Bytes::from),
            events: Some(kept.into()),
            usage_event: answer.head.usage_event(route, &answer.usage).into(),
            prompt_tokens: answer.usage.prompt_tokens,
            completion_tokens: answer.usage.completion_tokens,
        })
    }

    /// Records an answer that came in one piece.
    pub(crate) fn of_json(route: Route, body: &[u8]) -> Result<Self, Unfit> {
        let answer = take_apart::take_apart(route, body)?;
        Ok(Self {
            json: Some(answer.json.into()),
            events: answer.events.map(Bytes::from),
            usage_event: answer.head.usage_event(route, &answer.usage).into(),
            prompt_tokens: answer.usage.prompt_tokens,
            completion_tokens: answer.usage.completion_tokens,
        })
    }

    /// Bytes of all forms.
    pub(crate) fn bytes(&self) -> usize {
        let len = |form: &Option<Bytes>| form.as_ref().map_or(0, Bytes::len);
        len(&self.json) + len(&self.events) + self.usage_event.len()
    }

    /// The body in the form that is wanted, if there is one.
    pub(crate) fn body(&self, wants: Wants) -> Option<Bytes> {
        if !wants.stream {
            return self.json.clone();
        }
        let events = self.events.as_ref()?;
        let usage: &[u8] = if wants.include_usage {
            &self.usage_event
        } else {
            b""
        };
        Some([events, usage, protocol::sse::DONE].concat().into())
    }
}

/// Whether an answer that ends so is complete. `length` is: so much was asked for.
fn require_complete(finish_reason: Option<&str>) -> Result<(), Unfit> {
    match finish_reason {
        Some("stop" | "length" | "tool_calls" | "function_call") => Ok(()),
        Some(_) => Err(Unfit::Filtered),
        None => Err(Unfit::Incomplete),
    }
}

#[cfg(test)]
mod tests;
