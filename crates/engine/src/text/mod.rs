//! From tokens to the text that a reader sees.

mod stop;
mod utf8;

use std::sync::Arc;

use crate::request::Sampling;
use crate::vocabulary::Vocabulary;
use stop::StopFilter;
use utf8::Utf8Stream;

/// The text of one choice as it grows.
pub(crate) struct TextStream {
    vocabulary: Arc<dyn Vocabulary>,
    utf8: Utf8Stream,
    stops: StopFilter,
    skip_special: bool,
    /// The next text begins a new text, whose first space is not part of it.
    strip_space: bool,
}

impl TextStream {
    /// The text that follows `prompt`. In vocabularies that mark the beginning of a text with a space, an
    /// answer begins a text of its own if a special token stands before it (as chat templates do);
    /// otherwise it continues the prompt's, and its space belongs to it.
    pub(crate) fn new(
        vocabulary: Arc<dyn Vocabulary>,
        sampling: &Sampling,
        prompt: &[u32],
    ) -> Self {
        let begins_anew = prompt.last().is_none_or(|&id| vocabulary.is_special(id));
        Self {
            utf8: Utf8Stream::default(),
            stops: StopFilter::new(&sampling.stop, sampling.include_stop),
            skip_special: sampling.skip_special_tokens,
            strip_space: begins_anew && vocabulary.strips_leading_space(),
            vocabulary,
        }
    }

    /// Adds a token; appends text that is final to `out`. With `may_stop`, a stop string ends the text
    /// and is returned.
    pub(crate) fn push(&mut self, id: u32, may_stop: bool, out: &mut String) -> Option<String> {
        if self.skip_special && self.vocabulary.is_special(id) {
            return None;
        }
        let mut bytes = self.vocabulary.token_bytes(id).unwrap_or_default();
        if std::mem::take(&mut self.strip_space) {
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        let mut text = String::new();
        self.utf8.push(bytes, &mut text);
        if may_stop {
            self.stops.push(&text, out)
        } else {
            self.stops.pass(&text, out);
            None
        }
    }

    /// The end without a stop string: appends all that was held back.
    pub(crate) fn finish(&mut self, out: &mut String) {
        let mut text = String::new();
        self.utf8.finish(&mut text);
        self.stops.finish(out);
        out.push_str(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::tests::{Bytes, END, Words};

    fn stream(vocabulary: Arc<dyn Vocabulary>, prompt: &[u32], skip: bool) -> TextStream {
        let sampling = Sampling {
            stop: vec!["stop".to_owned()],
            skip_special_tokens: skip,
            ..Sampling::default()
        };
        TextStream::new(vocabulary, &sampling, prompt)
    }

    #[test]
    fn special_tokens_are_shown_only_when_wanted() {
        for (skip, expected) in [(true, "a"), (false, "a<end>")] {
            let mut text = stream(Arc::new(Bytes), &[0], skip);
            let mut out = String::new();
            text.push(u32::from(b'a'), true, &mut out);
            text.push(END, true, &mut out);
            text.finish(&mut out);
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn a_space_that_marks_the_beginning_is_stripped_once_and_only_there() {
        let hello = Words::id(" hello");
        for (prompt, expected) in [(Words::id("<s>"), "hello hello"), (hello, " hello hello")] {
            let mut text = stream(Arc::new(Words), &[prompt], true);
            let mut out = String::new();
            text.push(hello, true, &mut out);
            text.push(hello, true, &mut out);
            text.finish(&mut out);
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn held_text_and_broken_bytes_come_out_at_the_end() {
        let mut text = stream(Arc::new(Bytes), &[0], true);
        let mut out = String::new();
        for byte in *b"sto\xc3" {
            text.push(u32::from(byte), true, &mut out);
        }
        assert_eq!(out, "");
        text.finish(&mut out);
        assert_eq!(out, "sto\u{fffd}");
    }

    #[test]
    fn stop_strings_do_not_count_before_the_minimum() {
        let mut text = stream(Arc::new(Bytes), &[0], true);
        let mut out = String::new();
        for byte in *b"stop" {
            assert_eq!(text.push(u32::from(byte), false, &mut out), None);
        }
        assert_eq!(out, "stop");
        let stops: Vec<_> = b"stop"
            .iter()
            .map(|&b| text.push(u32::from(b), true, &mut out))
            .collect();
        assert_eq!(stops[3].as_deref(), Some("stop"));
        assert_eq!(out, "stop");
    }
}
