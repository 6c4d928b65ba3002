//! Reading a stream of events that arrives in arbitrary pieces.
//!
//! Follows the WHATWG's rules: lines end with LF, CR or CRLF, a leading byte order mark is dropped,
//! comments and unknown fields are skipped, several `data:` lines make one event.

/// The largest event (and line) that is held. A chunk with log-probabilities of 20 alternatives stays
/// far below it.
pub const MAX_EVENT_BYTES: usize = 1 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// The event's name, empty for most.
    pub name: String,
    /// Its data, lines joined with LF.
    pub data: String,
}

/// Why a stream cannot be read further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// More than [`MAX_EVENT_BYTES`] without the end of an event.
    #[error("an event is larger than {MAX_EVENT_BYTES} bytes")]
    TooLarge,
    /// Event streams are UTF-8.
    #[error("a line of the stream is not utf-8")]
    NotUtf8,
}

/// Takes bytes as they come and gives events as they are complete.
#[derive(Debug, Default)]
pub struct Decoder {
    line: Vec<u8>,
    event: Event,
    has_data: bool,
    started: bool,
    after_carriage_return: bool,
}

impl Decoder {
    /// Takes the next bytes and appends the events they complete.
    pub fn push(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), SseError> {
        for &byte in bytes {
            let ends_crlf = std::mem::take(&mut self.after_carriage_return) && byte == b'\n';
            match byte {
                b'\n' if ends_crlf => {}
                b'\n' | b'\r' => {
                    self.after_carriage_return = byte == b'\r';
                    self.end_line(events)?;
                }
                _ => {
                    if self.line.len() + self.event.data.len() >= MAX_EVENT_BYTES {
                        return Err(SseError::TooLarge);
                    }
                    self.line.push(byte);
                }
            }
        }
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<Event>) -> Result<(), SseError> {
        let line = std::mem::take(&mut self.line);
        let mut line = line.as_slice();
        if !std::mem::replace(&mut self.started, true) {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if std::mem::take(&mut self.has_data) {
                events.push(event);
            }
            return Ok(());
        }
        let text = std::str::from_utf8(line).map_err(|_| SseError::NotUtf8)?;
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
                self.has_data = true;
            }
            "event" => value.clone_into(&mut self.event.name),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(pieces: &[&[u8]]) -> Result<Vec<Event>, SseError> {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        for piece in pieces {
            decoder.push(piece, &mut events)?;
        }
        Ok(events)
    }

    fn data(events: &[Event]) -> Vec<&str> {
        events.iter().map(|event| event.data.as_str()).collect()
    }

    #[test]
    fn our_own_events_are_read_back() {
        let mut out = Vec::new();
        crate::sse::write_event(&mut out, |out| out.extend_from_slice(b"{\"a\":1}"));
        out.extend_from_slice(crate::sse::DONE);
        assert_eq!(data(&decode(&[&out]).unwrap()), ["{\"a\":1}", "[DONE]"]);
    }

    #[test]
    fn all_line_ends_comments_and_names_are_understood() {
        let stream =
            b"\xef\xbb\xbf: hello\r\nevent: error\rdata:one\r\ndata: two\r\n\r\nid: 3\n\ndata\n\n";
        let events = decode(&[stream]).unwrap();
        assert_eq!(data(&events), ["one\ntwo", ""]);
        assert_eq!(events[0].name, "error");
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut decoder = Decoder::default();
        let piece = vec![b'x'; MAX_EVENT_BYTES + 1];
        assert_eq!(
            decoder.push(&piece, &mut Vec::new()),
            Err(SseError::TooLarge)
        );
    }

    proptest! {
        #[test]
        fn where_the_pieces_are_cut_does_not_matter(
            lines in proptest::collection::vec("(data: [a-zé€😀]{0,6}|: x|event: e|)(\n|\r\n|\r)", 0..20),
            cut in any::<prop::sample::Index>(),
        ) {
            let stream = lines.concat();
            let cut = cut.index(stream.len() + 1);
            let (head, tail) = stream.as_bytes().split_at(cut);
            prop_assert_eq!(decode(&[head, tail]), decode(&[stream.as_bytes()]));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _ = decode(&[&bytes]);
        }
    }
}
