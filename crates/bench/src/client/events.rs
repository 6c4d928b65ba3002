//! What an event of a stream is, without parsing it.

use memchr::{memchr, memmem};
use serde::Deserialize;

/// What a run must know of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Chunks with text.
    pub(crate) chunks: u32,
    /// `[DONE]` came.
    pub(crate) done: bool,
    /// An error event came: its data.
    pub(crate) error: Option<String>,
    /// The last usage that came.
    pub(crate) usage: Option<Usage>,
}

/// What the server counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Usage {
    #[serde(default)]
    pub(crate) prompt_tokens: u64,
    #[serde(default)]
    pub(crate) completion_tokens: u64,
    #[serde(default)]
    pub(crate) prompt_tokens_details: Option<Details>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Details {
    #[serde(default)]
    pub(crate) cached_tokens: Option<u64>,
}

impl Usage {
    pub(crate) fn cached_tokens(&self) -> u64 {
        self.prompt_tokens_details
            .and_then(|details| details.cached_tokens)
            .unwrap_or(0)
    }
}

/// Cuts a stream into the data of its events. Bytes are copied only where an event is split between two reads.
#[derive(Default)]
pub(crate) struct Scanner {
    partial: Vec<u8>,
}

impl Scanner {
    /// Takes what arrived; `each` gets the data of every line that is complete.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8])) {
        while let Some(end) = memchr(b'\n', bytes) {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            if self.partial.is_empty() {
                data_of(line, &mut each);
            } else {
                self.partial.extend_from_slice(line);
                data_of(&self.partial, &mut each);
                self.partial.clear();
            }
            bytes = rest;
        }
        self.partial.extend_from_slice(bytes);
    }
}

fn data_of(line: &[u8], each: &mut impl FnMut(&[u8])) {
    if let Some(data) = line.trim_ascii_end().strip_prefix(b"data:") {
        each(data.trim_ascii_start());
    }
}

impl Seen {
    /// Adds an event.
    pub(crate) fn add(&mut self, data: &[u8]) {
        if data == b"[DONE]" {
            self.done = true;
            return;
        }
        if data.starts_with(b"{\"error\"") {
            self.error = Some(shorten(data));
            return;
        }
        self.chunks += u32::from(has_text(data));
        if let Some(usage) = usage_of(data) {
            self.usage = Some(usage);
        }
    }
}

/// The most of an error that is kept.
const ERROR_BYTES: usize = 300;

pub(crate) fn shorten(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(ERROR_BYTES)]).into_owned()
}

/// Whether a chunk carries text. Members that hold it are looked for as servers write them: with or without a
/// space after the colon.
fn has_text(data: &[u8]) -> bool {
    const MEMBERS: [&[u8]; 4] = [
        b"\"content\":",
        b"\"text\":",
        b"\"reasoning_content\":",
        b"\"arguments\":",
    ];
    MEMBERS.iter().any(|member| {
        memmem::find_iter(data, member).any(|at| {
            let value = data[at + member.len()..].trim_ascii_start();
            value.starts_with(b"\"") && !value.starts_with(b"\"\"")
        })
    })
}

/// The usage in a chunk or an answer, if it has one that is not null.
pub(crate) fn usage_of(data: &[u8]) -> Option<Usage> {
    #[derive(Deserialize)]
    struct WithUsage {
        usage: Option<Usage>,
    }
    let at = memmem::rfind(data, b"\"usage\":")?;
    let value = data[at + b"\"usage\":".len()..].trim_ascii_start();
    value.starts_with(b"{").then_some(())?;
    serde_json::from_slice::<WithUsage>(data).ok()?.usage
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n\
        data: {\"choices\":[{\"delta\":{\"content\":\" a\"}}],\"usage\":null}\r\n\r\n: note\n\
        data: {\"choices\": [{\"text\": \"b\"}]}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\n\
        data: [DONE]\n\n";

    #[test]
    fn chunks_usage_and_the_end_are_seen_wherever_the_stream_is_cut() {
        for cut in 0..STREAM.len() {
            let (mut scanner, mut seen) = (Scanner::default(), Seen::default());
            scanner.push(&STREAM[..cut], |data| seen.add(data));
            scanner.push(&STREAM[cut..], |data| seen.add(data));
            let usage = seen.usage.unwrap();
            assert_eq!(
                (seen.chunks, seen.done, seen.error.as_ref()),
                (2, true, None)
            );
            assert_eq!(
                (
                    usage.prompt_tokens,
                    usage.completion_tokens,
                    usage.cached_tokens()
                ),
                (9, 2, 8)
            );
        }
    }

    #[test]
    fn an_error_event_is_an_error() {
        let mut seen = Seen::default();
        seen.add(b"{\"error\":{\"message\":\"lost\"}}");
        assert!(seen.error.unwrap().contains("lost"));
    }
}
