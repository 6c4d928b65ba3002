//! Where a text can be cut so that its parts have the tokens of the whole.
//!
//! The tokenizers of today cut a text into words before they merge anything. Their rules differ, but in ASCII they have this in
//! common: a word ends
//! - before a lone space between two visible characters,
//! - behind a lone line feed between two visible characters, unless the second is a slash,
//! - where letters, digits and other visible characters meet, except before a letter that follows one of the others: some
//!   rules take `(this` for a word.
//!
//! Dashes, quotes and dots of Unicode's general punctuation, which people's programs write for them, count as visible, and so do Latin letters.
//!
//! No rule lets a word go on over such a place, none looks back, and what looks ahead looks for the end of white space,
//! of which no part has more than one character at its end. Added tokens are found before words are: places within one of them are no cuts, and a tokenizer
//! whose added tokens reach over white space is left alone.
//!
//! This holds for rules that are known here by their text.

use std::ops::RangeInclusive;

use serde_json::Value;
use tokenizers::ModelWrapper;

use super::latin;
use super::split::{Split, adds_space};

const ASCII: usize = 128;

/// Where texts for one tokenizer can be cut.
#[derive(Debug)]
pub(super) struct Cuts {
    /// For each character, those that begin a new part behind it, as bits.
    apart: [u128; ASCII],
    /// Whether a part may begin with something else than a space: some tokenizers would add one.
    may_begin_bare: bool,
    /// Whether Unicode's dashes and quotes begin a new part behind a letter or digit.
    are_dashes_apart: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Digit,
    Mark,
}

fn class(byte: u8) -> Option<Class> {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' => Some(Class::Letter),
        b'0'..=b'9' => Some(Class::Digit),
        _ => byte.is_ascii_graphic().then_some(Class::Mark),
    }
}

impl Cuts {
    /// For a tokenizer, and the rule by which it cuts what is cut here; `None` if nothing is known of it.
    pub(super) fn of(tokenizer: &tokenizers::Tokenizer) -> Option<(Self, Option<Split>)> {
        let plain_model =
            matches!(tokenizer.get_model(), ModelWrapper::BPE(bpe) if bpe.dropout.is_none());
        let added = tokenizer.get_added_tokens_decoder();
        let reaches_over = |token: &tokenizers::AddedToken| {
            token.single_word
                || token.lstrip
                || token.rstrip
                || token.content.contains(char::is_whitespace)
        };
        let stage = |stage: Option<serde_json::Result<Value>>| stage.and_then(Result::ok);
        let normalizer = stage(tokenizer.get_normalizer().map(serde_json::to_value));
        let pre_tokenizer = stage(tokenizer.get_pre_tokenizer().map(serde_json::to_value));
        let pre_tokenizer = pre_tokenizer?;
        let split = Split::of(&pre_tokenizer)?;
        let holds = plain_model
            && tokenizer.get_truncation().is_none()
            && tokenizer.get_padding().is_none()
            && !added.values().any(reaches_over)
            // What it composes begins with a visible character and stays of its class.
            && normalizer.is_none_or(|stage| is(&stage, "NFC"));
        if !holds {
            return None;
        }
        Some(match adds_space(&pre_tokenizer) {
            // A part that begins without a space would get one.
            true => (Self::at_spaces(), None),
            false => {
                let added = added.values().map(|token| &*token.content);
                (Self::between_classes(added), Some(split))
            }
        })
    }

    fn at_spaces() -> Self {
        Self {
            apart: [0; ASCII],
            may_begin_bare: false,
            are_dashes_apart: false,
        }
    }

    fn between_classes<'a>(added: impl Iterator<Item = &'a str> + Clone) -> Self {
        let are_dashes_apart = !added
            .clone()
            .any(|content| content.contains(|sign| DASHES.contains(&sign)));
        let mut apart = [0; ASCII];
        for (before, bits) in (0u8..).zip(&mut apart) {
            for after in 0..ASCII as u8 {
                let parts = match (class(before), class(after)) {
                    (Some(Class::Mark), Some(Class::Letter)) | (None, _) | (_, None) => false,
                    (Some(before), Some(after)) => before != after,
                };
                *bits |= u128::from(parts) << after;
            }
        }
        for pair in added.flat_map(|content| content.as_bytes().windows(2)) {
            if let [before, after @ 0..=127] = pair
                && let Some(bits) = apart.get_mut(usize::from(*before))
            {
                *bits &= !(1 << after);
            }
        }
        Self {
            apart,
            may_begin_bare: true,
            are_dashes_apart,
        }
    }

    /// The length of the first part of `text`.
    pub(super) fn first(&self, text: &str) -> usize {
        let bytes = text.as_bytes();
        (1..bytes.len())
            .find(|at| self.is_cut(bytes, *at))
            .unwrap_or(bytes.len())
    }

    fn is_cut(&self, bytes: &[u8], at: usize) -> bool {
        let (head, tail) = bytes.split_at(at);
        let (Some(&before), Some(&after)) = (head.last(), tail.first()) else {
            return false;
        };
        match after {
            b' ' => ends_visibly(head) && begins_visibly(tail.get(1..).unwrap_or_default()),
            // Mistral's rule takes a slash behind the line feed into the word before it.
            b'/' if before == b'\n' => false,
            _ if before == b'\n' => {
                self.may_begin_bare
                    && begins_visibly(tail)
                    && ends_visibly(head.get(..at - 1).unwrap_or_default())
            }
            0..=127 => {
                let apart = self.apart.get(usize::from(before)).copied().unwrap_or(0);
                apart >> after & 1 == 1
            }
            _ => self.are_dashes_apart && before.is_ascii_alphanumeric() && begins_with_dash(tail),
        }
    }
}

/// General punctuation that is neither white space nor without width.
const DASHES: RangeInclusive<char> = '\u{2010}'..='\u{2027}';

fn begins_with_dash(bytes: &[u8]) -> bool {
    matches!(bytes, [0xe2, 0x80, 0x90..=0xa7, ..])
}

fn begins_visibly(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(u8::is_ascii_graphic)
        || begins_with_dash(bytes)
        || latin::begins(bytes)
}

fn ends_visibly(bytes: &[u8]) -> bool {
    bytes.last().is_some_and(u8::is_ascii_graphic)
        || matches!(bytes, [.., 0xe2, 0x80, 0x90..=0xa7])
        || latin::ends(bytes)
}

fn is(stage: &Value, kind: &str) -> bool {
    stage.get("type").and_then(Value::as_str) == Some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts<'a>(cuts: &Cuts, mut rest: &'a str) -> Vec<&'a str> {
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let (part, after) = rest.split_at(cuts.first(rest));
            parts.push(part);
            rest = after;
        }
        parts
    }

    #[test]
    fn a_text_is_cut_where_every_rule_ends_a_word() {
        let cuts = Cuts::between_classes([].into_iter());
        assert_eq!(
            parts(
                &cuts,
                "To be,  or (not) 2b: it's $1,50\n\nif\u{a0} x é a\n/b\nc"
            ),
            [
                "To",
                " be",
                ",  or",
                " (not",
                ")",
                " 2",
                "b",
                ":",
                " it",
                "'s",
                " $",
                "1",
                ",",
                "50\n\nif\u{a0} x",
                " é",
                " a\n/b\n",
                "c"
            ]
        );
    }

    #[test]
    fn an_added_token_stays_whole() {
        let cuts = Cuts::between_classes(["<|im_start|>"].into_iter());
        assert_eq!(
            parts(&cuts, "end<|im_start|>user\nHi!\n\nSo\u{2014} it\u{2019}s"),
            [
                "end",
                "<|im_start|>user\n",
                "Hi",
                "!\n\nSo",
                "\u{2014}",
                " it",
                "\u{2019}s"
            ]
        );
    }

    #[test]
    fn a_slash_stays_with_the_line_feed_before_it() {
        let cuts = Cuts::between_classes([].into_iter());
        assert_eq!(parts(&cuts, "a|\n/b|\n|"), ["a", "|\n/b", "|\n", "|"]);
    }

    #[test]
    fn where_spaces_are_added_only_spaces_are_cut_at() {
        let cuts = Cuts::at_spaces();
        assert_eq!(parts(&cuts, "To be, or 2b"), ["To", " be,", " or", " 2b"]);
    }
}
