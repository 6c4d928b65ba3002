//! Where events end.

use bytes::{Bytes, BytesMut};
use memchr::memchr;
use protocol::sse::MAX_EVENT_BYTES;

/// The whole events of what was begun and what came now; the rest stays in `begun`.
pub(super) fn whole_events(begun: &mut BytesMut, mut piece: Bytes) -> Option<Bytes> {
    if begun.is_empty() && piece.ends_with(b"\n\n") {
        return Some(piece);
    }
    if !begun.is_empty() {
        begun.extend_from_slice(&piece);
        piece = std::mem::take(begun).freeze();
    }
    let mut end = 0;
    while let Some(length) = event_length(piece.get(end..).unwrap_or_default()) {
        end += length;
    }
    let whole = piece.split_to(end);
    if piece.len() > MAX_EVENT_BYTES {
        // Nobody writes such events; it goes on as it is rather than being held without bound.
        let mut all = BytesMut::from(whole.as_ref());
        all.extend_from_slice(&piece);
        return Some(all.freeze());
    }
    begun.extend_from_slice(&piece);
    (!whole.is_empty()).then_some(whole)
}

/// Bytes of the first event, its empty line included; `None` if it is not whole.
pub(super) fn event_length(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let rest = bytes.get(at..)?;
        at += memchr(b'\n', rest)? + 1;
        match bytes.get(at..)? {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
}
