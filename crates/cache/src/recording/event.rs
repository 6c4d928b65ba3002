//! The events of a stream, cut out of the bytes as they come, and what kind each is.
//!
//! Nothing is parsed here: a stream passes through this while its client waits for it.

use bytes::{Bytes, BytesMut};

/// What an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// A piece of the answer.
    Chunk,
    /// The usage, without a piece.
    Usage,
    /// The model server failed.
    Error,
    /// The end.
    Done,
    /// Keeps a connection open.
    Comment,
}

/// One event with the blank line that ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    pub(crate) bytes: Bytes,
}

/// With the other usage left out, OpenAI says so in every chunk.
const NO_USAGE: &[u8] = b",\"usage\":null}";

impl Event {
    pub(crate) fn new(bytes: Bytes) -> Self {
        let kind = kind_of(&bytes);
        Self { kind, bytes }
    }

    /// What stands behind `data:`. Model servers write it in one line.
    pub(crate) fn data(&self) -> &[u8] {
        data_of(&self.bytes)
    }

    /// The event for someone who did not ask for the usage, and for everyone from the cache.
    pub(crate) fn without_usage(&self) -> Bytes {
        let data = self.data();
        match data.strip_suffix(NO_USAGE) {
            None => self.bytes.clone(),
            Some(rest) => [b"data: ", rest, b"}\n\n"].concat().into(),
        }
    }
}

fn data_of(event: &[u8]) -> &[u8] {
    event
        .strip_prefix(b"data:")
        .unwrap_or_default()
        .trim_ascii()
}

fn kind_of(event: &[u8]) -> EventKind {
    if event.starts_with(b"event: error") {
        return EventKind::Error;
    }
    if !event.starts_with(b"data:") {
        return EventKind::Comment;
    }
    let data = data_of(event);
    if data == b"[DONE]" {
        EventKind::Done
    } else if data.starts_with(b"{\"error\"") || data.starts_with(b"{\"object\":\"error\"") {
        EventKind::Error
    } else if has_no_choices(data) {
        EventKind::Usage
    } else {
        EventKind::Chunk
    }
}

/// An empty list of choices stands near the beginning, before anything long. No text can look like it: a
/// quote inside one has a backslash before it.
fn has_no_choices(data: &[u8]) -> bool {
    const LOOKED_AT: usize = 1 << 10;
    let beginning = data.get(..LOOKED_AT).unwrap_or(data);
    let contains = |part: &[u8]| beginning.windows(part.len()).any(|window| window == part);
    contains(b"\"choices\":[]") || contains(b"\"choices\": []")
}

/// Takes bytes as they come and gives events as they are complete.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    /// The beginning of an event.
    rest: BytesMut,
}

impl Splitter {
    pub(crate) fn push(&mut self, bytes: Bytes, mut found: impl FnMut(Event)) {
        let mut bytes = bytes;
        if !self.rest.is_empty() {
            self.rest.extend_from_slice(&bytes);
            bytes = self.rest.split().freeze();
        }
        while let Some(end) = event_end(&bytes) {
            let event = bytes.split_to(end);
            if !event.trim_ascii().is_empty() {
                found(Event::new(event));
            }
        }
        if !bytes.is_empty() {
            self.rest = BytesMut::from(bytes);
        }
    }

    /// Bytes that wait for the rest of their event.
    pub(crate) fn pending(&self) -> usize {
        self.rest.len()
    }
}

/// Where the first event ends, behind its blank line.
fn event_end(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let line_end = from + bytes.get(from..)?.iter().position(|byte| *byte == b'\n')?;
        match bytes.get(line_end + 1..)? {
            [b'\n', ..] => return Some(line_end + 2),
            [b'\r', b'\n', ..] => return Some(line_end + 3),
            _ => from = line_end + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(pieces: &[&[u8]]) -> Vec<(EventKind, Vec<u8>)> {
        let mut splitter = Splitter::default();
        let mut events = Vec::new();
        for piece in pieces {
            splitter.push(Bytes::copy_from_slice(piece), |event| {
                events.push((event.kind, event.bytes.to_vec()));
            });
        }
        events
    }

    #[test]
    fn every_event_has_its_kind() {
        let kinds = |stream: &[u8]| -> Vec<EventKind> {
            split(&[stream]).into_iter().map(|(kind, _)| kind).collect()
        };
        assert_eq!(
            kinds(
                b": hello\n\ndata: {\"choices\":[{\"text\":\"\\\"choices\\\":[]\"}]}\r\n\r\n\
                  data: {\"choices\":[],\"usage\":{}}\n\ndata: {\"error\":{}}\n\n\
                  event: error\ndata: x\n\ndata: [DONE]\n\ndata: unfinished\n"
            ),
            [
                EventKind::Comment,
                EventKind::Chunk,
                EventKind::Usage,
                EventKind::Error,
                EventKind::Error,
                EventKind::Done
            ]
        );
    }

    #[test]
    fn the_missing_usage_is_left_out() {
        let event = Event::new(Bytes::from_static(
            b"data: {\"choices\":[{\"index\":0}],\"usage\":null}\n\n",
        ));
        assert_eq!(
            &event.without_usage()[..],
            b"data: {\"choices\":[{\"index\":0}]}\n\n"
        );
        let other = Event::new(Bytes::from_static(b"data: {\"choices\":[{}]}\n\n"));
        assert_eq!(other.without_usage(), other.bytes);
    }

    proptest! {
        #[test]
        fn where_the_pieces_are_cut_does_not_matter(
            lines in proptest::collection::vec("(data: [a-z]{0,6}|: x|)(\n|\r\n)", 0..20),
            cut in any::<prop::sample::Index>(),
        ) {
            let stream = lines.concat();
            let (head, tail) = stream.as_bytes().split_at(cut.index(stream.len() + 1));
            prop_assert_eq!(split(&[head, tail]), split(&[stream.as_bytes()]));
        }
    }
}
