//! Server-sent events, as far as model servers use them: `data:` lines and a blank line.

mod decode;

pub use decode::{Decoder, Event, MAX_EVENT_BYTES, SseError};

/// The last event of every stream.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// Appends one event whose data `write` appends. The data must be one line, as JSON is.
pub fn write_event(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"data: ");
    let start = out.len();
    write(out);
    debug_assert!(!out[start..].contains(&b'\n'));
    out.extend_from_slice(b"\n\n");
}
