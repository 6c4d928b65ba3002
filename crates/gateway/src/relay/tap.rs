//! Listens to an answer on its way to the client, without taking it apart.
//!
//! Of a stream only whole events go on, so that a worker that dies in the middle of one leaves nothing
//! half-said. An event is looked at with a few searches for fixed bytes: inside a JSON string every quote is
//! escaped, so `"usage":{` can only be a key. Nothing is parsed but the usage itself, once per answer.

use bytes::{Bytes, BytesMut};
use memchr::{memchr, memmem};
use protocol::sse::MAX_EVENT_BYTES;
use serde::Deserialize;

/// The end of an answer in one piece, where the usage stands, is kept to this many bytes.
const TAIL_BYTES: usize = 4 << 10;

/// The most text that is kept for a continuation; beyond it there is none.
const MAX_SAID_BYTES: usize = 1 << 20;

const DONE: &[u8] = b"data: [DONE]";
const USAGE: &[u8] = b"\"usage\":";
const USAGE_OBJECT: &[u8] = b"\"usage\":{";
const NO_CHOICES: &[u8] = b"\"choices\":[]";
const FINISHED: &[u8] = b"\"finish_reason\":\"";
const ERROR: &[u8] = b"data: {\"error\"";
const OBJECT_ERROR: &[u8] = b"data: {\"object\":\"error\"";
const BLAMES_CLIENT: [&[u8]; 2] = [b"\"code\":4", b"\"code\": 4"];

/// What an answer says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Report {
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) completion_tokens: Option<u64>,
    pub(crate) cached_tokens: Option<u64>,
}

/// Usage as vLLM and OpenAI write it, for chats and for responses.
#[derive(Deserialize)]
struct WrittenUsage {
    #[serde(alias = "input_tokens")]
    prompt_tokens: Option<u64>,
    #[serde(alias = "output_tokens")]
    completion_tokens: Option<u64>,
    #[serde(alias = "input_tokens_details")]
    prompt_tokens_details: Option<WrittenDetails>,
}

#[derive(Deserialize)]
struct WrittenDetails {
    cached_tokens: Option<u64>,
}

/// Where the text of an event stands: what comes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextKey {
    /// In chats.
    Content,
    /// In completions.
    Text,
}

impl TextKey {
    fn bytes(self) -> &'static [u8] {
        match self {
            TextKey::Content => b"\"content\":\"",
            TextKey::Text => b"\"text\":\"",
        }
    }
}

/// The text of a stream so far, as it stood in its JSON: escapes and all, so that it can go into another
/// body as it is.
#[derive(Debug)]
struct Said {
    key: TextKey,
    text: Vec<u8>,
}

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
    /// Events of an earlier worker whose answer is being continued.
    before: u64,
}

impl Tap {
    /// For a stream. With a key, its text is kept for a continuation.
    pub(crate) fn of_stream(hide_usage: bool, keep: Option<TextKey>) -> Self {
        let said = keep.map(|key| Said {
            key,
            text: Vec::new(),
        });
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

    /// Pieces of text so far: about as many as tokens.
    pub(crate) fn events(&self) -> u64 {
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

    /// Another worker takes over: what was begun is forgotten, what was said is kept.
    pub(crate) fn resume(&mut self) {
        self.before += std::mem::take(&mut self.events);
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
        let found = memmem::rfind(event, USAGE_OBJECT);
        let usage = found.and_then(|at| {
            let written = event.get(at + USAGE.len()..)?;
            read_usage(written).map(|(usage, length)| (at + USAGE.len(), length, usage))
        });
        if usage.is_none() || memmem::find(event, NO_CHOICES).is_none() {
            let finished = memmem::find_iter(event, FINISHED).count() as u64;
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

impl Report {
    /// What an earlier worker said was part of this one's prompt.
    fn add_before(&mut self, events: u64) {
        if let (Some(prompt), Some(completion)) =
            (&mut self.prompt_tokens, &mut self.completion_tokens)
        {
            let moved = events.min(*prompt);
            *prompt -= moved;
            *completion += moved;
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let count =
            |tokens: Option<u64>| usize::try_from(tokens.unwrap_or(0)).unwrap_or(usize::MAX);
        let usage = protocol::Usage {
            prompt_tokens: count(self.prompt_tokens),
            completion_tokens: count(self.completion_tokens),
            cached_tokens: count(self.cached_tokens),
            drafts: None,
        };
        // Writing to memory cannot fail.
        let _written = serde_json::to_writer(out, &usage);
    }
}

/// Keeps the text of an event. Anything that is not text makes a continuation impossible. True if the
/// event says no text yet.
fn listen(said: &mut Option<Said>, event: &[u8]) -> bool {
    let Some(keeper) = said else {
        return false;
    };
    let speaks_otherwise = [
        b"\"tool_calls\":[{".as_slice(),
        b"\"reasoning_content\":\"",
        b"\"reasoning\":\"",
        b"\"function_call\":{",
    ];
    if speaks_otherwise
        .iter()
        .any(|mark| memmem::find(event, mark).is_some())
    {
        *said = None;
        return false;
    }
    let key = keeper.key.bytes();
    let Some(at) = memmem::find(event, key) else {
        return true;
    };
    let text = escaped_text(event.get(at + key.len()..).unwrap_or_default());
    if keeper.text.len() + text.len() > MAX_SAID_BYTES {
        *said = None;
        return false;
    }
    keeper.text.extend_from_slice(text);
    text.is_empty()
}

/// Up to the quote that ends a string.
fn escaped_text(rest: &[u8]) -> &[u8] {
    let mut at = 0;
    while let Some(step) = memchr::memchr2(b'"', b'\\', rest.get(at..).unwrap_or_default()) {
        at += step;
        if rest.get(at) == Some(&b'"') {
            return rest.get(..at).unwrap_or_default();
        }
        at += 2;
    }
    &[]
}

/// A usage object and its length.
fn read_usage(written: &[u8]) -> Option<(Report, usize)> {
    let mut values = serde_json::Deserializer::from_slice(written).into_iter::<WrittenUsage>();
    let usage = values.next()?.ok()?;
    let report = Report {
        prompt_tokens: usage.prompt_tokens,
        completion_tokens: usage.completion_tokens,
        cached_tokens: usage.prompt_tokens_details.and_then(|d| d.cached_tokens),
    };
    Some((report, values.byte_offset()))
}

/// The whole events of what was begun and what came now; the rest stays in `begun`.
fn whole_events(begun: &mut BytesMut, mut piece: Bytes) -> Option<Bytes> {
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
fn event_length(bytes: &[u8]) -> Option<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HELLO: &str = "data: {\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"He \\\"llo\\\" \"},\"finish_reason\":null}]}\n\n";
    const LAST: &str =
        "data: {\"choices\":[{\"delta\":{\"content\":\"w\"},\"finish_reason\":\"stop\"}]}\n\n";
    const COUNTED: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"total_tokens\":15,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\n";
    const OVER: &str = "data: [DONE]\n\n";

    fn passed(tap: &mut Tap, stream: &str, cuts: &[usize]) -> String {
        let mut out = Vec::new();
        let mut rest = stream.as_bytes();
        for &cut in cuts {
            let (now, later) = rest.split_at(cut.min(rest.len()));
            out.extend_from_slice(&tap.pass(Bytes::copy_from_slice(now)));
            rest = later;
        }
        out.extend_from_slice(&tap.pass(Bytes::copy_from_slice(rest)));
        out.extend_from_slice(&tap.end());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_stream_is_heard_and_passed_on_as_it_is() {
        let mut tap = Tap::of_stream(false, Some(TextKey::Content));
        let stream = [HELLO, LAST, COUNTED, OVER].concat();
        assert_eq!(passed(&mut tap, &stream, &[]), stream);
        assert!(tap.finished() == 1 && tap.is_done() && tap.failure().is_none());
        assert_eq!(tap.said(), Some(br#"He \"llo\" w"#.as_slice()));
        assert_eq!(tap.events(), 2);
        let report = Report {
            prompt_tokens: Some(12),
            completion_tokens: Some(3),
            cached_tokens: Some(8),
        };
        assert_eq!(tap.report(), report);
    }

    #[test]
    fn usage_that_only_we_asked_for_is_not_shown() {
        let mut tap = Tap::of_stream(true, None);
        let stream = [HELLO, LAST, COUNTED, OVER].concat();
        assert_eq!(passed(&mut tap, &stream, &[]), [HELLO, LAST, OVER].concat());
        assert_eq!(tap.report().cached_tokens, Some(8));
    }

    #[test]
    fn half_an_event_is_held_back() {
        let mut tap = Tap::of_stream(false, None);
        let half = &HELLO[..40];
        assert_eq!(tap.pass(Bytes::from([HELLO, half].concat())), HELLO);
        assert_eq!(tap.pass(Bytes::from(HELLO[40..].to_owned())), HELLO);
    }

    #[test]
    fn text_that_looks_like_a_key_is_text() {
        let tricky = r#"data: {"choices":[{"delta":{"content":"\"usage\":{\"prompt_tokens\":1},\"finish_reason\":\"x\",\"choices\":[] \\"},"finish_reason":null}]}"#;
        let tricky = format!("{tricky}\n\n");
        let mut tap = Tap::of_stream(true, Some(TextKey::Content));
        assert_eq!(passed(&mut tap, &tricky, &[]), tricky);
        assert_eq!(tap.report(), Report::default());
        assert_eq!(tap.finished(), 0);
        assert!(tap.said().unwrap().ends_with(br"[] \\"));
    }

    #[test]
    fn an_error_event_is_noticed() {
        for (event, failure) in [
            (
                "data: {\"error\": {\"message\": \"gone\", \"code\": 500}}\n\n",
                Failure::OfWorker,
            ),
            (
                "data: {\"error\":{\"message\":\"bad\",\"code\":400}}\n\n",
                Failure::OfClient,
            ),
            (
                "data: {\"object\":\"error\",\"message\":\"gone\"}\n\n",
                Failure::OfWorker,
            ),
        ] {
            let mut tap = Tap::of_stream(false, None);
            assert_eq!(passed(&mut tap, event, &[]), event);
            assert_eq!(tap.failure(), Some(failure), "{event}");
        }
    }

    #[test]
    fn tool_calls_and_thoughts_cannot_be_continued() {
        for delta in [
            r#"{"tool_calls":[{"index":0}]}"#,
            r#"{"reasoning_content":"hm"}"#,
        ] {
            let event = format!("data: {{\"choices\":[{{\"delta\":{delta}}}]}}\n\n");
            let mut tap = Tap::of_stream(false, Some(TextKey::Content));
            passed(&mut tap, &event, &[]);
            assert_eq!(tap.said(), None, "{delta}");
        }
    }

    #[test]
    fn a_continuation_says_hello_once_and_counts_what_was_said_before() {
        let opening =
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
        let mut tap = Tap::of_stream(false, Some(TextKey::Content));
        passed(&mut tap, &[opening, HELLO, HELLO].concat(), &[]);
        tap.pass(Bytes::from_static(b"data: {\"half"));
        tap.resume();
        let rest = [opening, LAST, COUNTED, OVER].concat();
        let seen = passed(&mut tap, &rest, &[]);
        assert!(seen.starts_with(LAST), "{seen}");
        // 12 + 3 tokens in all, of which the first worker had said 2 pieces.
        assert!(seen.contains("\"prompt_tokens\":10,\"completion_tokens\":5,\"total_tokens\":15"));
        assert!(seen.ends_with(OVER));
    }

    #[test]
    fn the_usage_of_a_whole_answer_is_found_at_its_end() {
        let mut tap = Tap::of_whole();
        let answer = format!(
            "{{\"choices\":[{{\"text\":\"{}\"}}],\"usage\":{{\"prompt_tokens\":7,\"completion_tokens\":2}},\"x\":null}}",
            "y".repeat(3 * TAIL_BYTES)
        );
        assert_eq!(passed(&mut tap, &answer, &[5_000, 4_000]), answer);
        assert_eq!(tap.report().prompt_tokens, Some(7));
        assert_eq!(tap.report().cached_tokens, None);
    }

    proptest! {
        #[test]
        fn where_the_pieces_are_cut_does_not_matter(
            cuts in proptest::collection::vec(0_usize..120, 0..8),
            hide in any::<bool>(),
        ) {
            let stream = [HELLO, ": ping\r\n\r\n", LAST, COUNTED, OVER].concat();
            let mut whole = Tap::of_stream(hide, Some(TextKey::Content));
            let mut cut = Tap::of_stream(hide, Some(TextKey::Content));
            prop_assert_eq!(passed(&mut cut, &stream, &cuts), passed(&mut whole, &stream, &[]));
            prop_assert_eq!(cut.report(), whole.report());
            prop_assert_eq!(cut.said(), whole.said());
            prop_assert_eq!(cut.events(), whole.events());
        }

        #[test]
        fn arbitrary_bytes_never_panic(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..64), 0..8)
        ) {
            let mut tap = Tap::of_stream(true, Some(TextKey::Text));
            for piece in pieces {
                tap.pass(piece.into());
            }
            tap.end();
        }
    }
}
