//! Where a text can be cut so that its parts have the tokens of the whole.
//!
//! The tokenizers of today cut a text into words before they merge anything. Their rules differ, but in ASCII they have this in
//! common: a word ends
//! - before a lone space between two visible characters,
//! - where letters, digits and other visible characters meet, except before a letter that follows one of the others: some
//!   rules take `(this` for a word.
//!
//! No rule lets a word go on over such a place, none looks back, and what looks ahead looks for the end of white space,
//! with which no part ends. Added tokens are found before words are: places within one of them are no cuts, and a tokenizer
//! whose added tokens reach over white space is left alone.
//!
//! This holds for rules that are known here by their text.

use std::borrow::Cow;

use serde_json::Value;
use tokenizers::ModelWrapper;

use super::super::gguf;

/// Rules of which this is known, in the spelling of `tokenizer.json`.
pub(super) const KNOWN_RULES: [&str; 4] = [
    gguf::LLAMA3,
    gguf::QWEN2,
    gguf::TEKKEN,
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
];

const ASCII: usize = 128;

/// A space in the alphabet of tokenizers that work on bytes.
const SPACE: char = '\u{120}';

/// Where texts for one tokenizer can be cut.
#[derive(Debug)]
pub(super) struct Cuts {
    /// For each character, those that begin a new part behind it, as bits.
    apart: [u128; ASCII],
    /// Whether letters are nothing but letters: no added token is spelled with them alone.
    are_letters_plain: bool,
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
    /// For a tokenizer; `None` if nothing is known of its rule.
    pub(super) fn of(tokenizer: &tokenizers::Tokenizer) -> Option<Self> {
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
        let rule = pre_tokenizer.as_ref().and_then(known_rule);
        let holds = plain_model
            && tokenizer.get_truncation().is_none()
            && tokenizer.get_padding().is_none()
            && !added.values().any(reaches_over)
            // What it composes begins with a visible character and stays of its class.
            && normalizer.is_none_or(|stage| is(&stage, "NFC"));
        let rule = rule.filter(|_| holds)?;
        Some(match rule {
            // A part that begins without a space would get one.
            Rule::AddsSpaces => Self::at_spaces(),
            Rule::Plain => Self::between_classes(added.values().map(|token| &*token.content)),
        })
    }

    fn at_spaces() -> Self {
        Self {
            apart: [0; ASCII],
            are_letters_plain: false,
        }
    }

    fn between_classes<'a>(added: impl Iterator<Item = &'a str> + Clone) -> Self {
        let is_plain = |content: &str| content.bytes().all(|byte| byte.is_ascii_alphabetic());
        let are_letters_plain = !added.clone().any(is_plain);
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
            are_letters_plain,
        }
    }

    /// How a part is spelled in the model's own alphabet, if every rule takes it for one word: letters, small ones after
    /// capitals, perhaps behind a space.
    pub(super) fn spelled<'a>(&self, part: &'a str) -> Option<Cow<'a, str>> {
        let letters = part.strip_prefix(' ').unwrap_or(part);
        let small = letters.trim_start_matches(|letter: char| letter.is_ascii_uppercase());
        let is_word = !letters.is_empty() && small.bytes().all(|byte| byte.is_ascii_lowercase());
        if !self.are_letters_plain || !is_word {
            return None;
        }
        Some(match letters.len() == part.len() {
            true => Cow::Borrowed(part),
            false => Cow::Owned(format!("{SPACE}{letters}")),
        })
    }

    /// The length of the first part of `text`.
    pub(super) fn first(&self, text: &str) -> usize {
        let bytes = text.as_bytes();
        let visible = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_graphic);
        let mut before = bytes.first().copied().unwrap_or_default();
        for (at, byte) in bytes.iter().copied().enumerate().skip(1) {
            let is_cut = if byte == b' ' {
                before.is_ascii_graphic() && visible(at + 1)
            } else {
                let apart = self.apart.get(usize::from(before)).copied().unwrap_or(0);
                byte.is_ascii() && apart >> byte & 1 == 1
            };
            if is_cut {
                return at;
            }
            before = byte;
        }
        bytes.len()
    }
}

enum Rule {
    Plain,
    AddsSpaces,
}

fn is(stage: &Value, kind: &str) -> bool {
    stage.get("type").and_then(Value::as_str) == Some(kind)
}

fn known_rule(stage: &Value) -> Option<Rule> {
    let flag = |stage: &Value, name| stage.get(name).and_then(Value::as_bool) == Some(true);
    let stages = stage.get("pretokenizers").and_then(Value::as_array);
    let (holds, bytes) = match stages.map(Vec::as_slice) {
        None => (flag(stage, "use_regex"), stage),
        Some([first, bytes]) => {
            let digits_first = is(first, "Digits") && flag(bytes, "use_regex");
            (digits_first || is_known_split(first), bytes)
        }
        Some(_) => return None,
    };
    if !holds || !is(bytes, "ByteLevel") {
        return None;
    }
    Some(match flag(bytes, "add_prefix_space") {
        true => Rule::AddsSpaces,
        false => Rule::Plain,
    })
}

fn is_known_split(stage: &Value) -> bool {
    let rule = stage.pointer("/pattern/Regex").and_then(Value::as_str);
    is(stage, "Split")
        && stage.get("behavior").and_then(Value::as_str) == Some("Isolated")
        && stage.get("invert").and_then(Value::as_bool) == Some(false)
        && rule.is_some_and(|rule| KNOWN_RULES.contains(&rule))
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
            parts(&cuts, "To be,  or (not) 2b: it's $1,50\n\nif\u{a0} x é a"),
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
                "50\n\nif\u{a0} x é a"
            ]
        );
    }

    #[test]
    fn an_added_token_stays_whole() {
        let cuts = Cuts::between_classes(["<|im_start|>"].into_iter());
        assert_eq!(
            parts(&cuts, "end<|im_start|>user\nHi!"),
            ["end", "<|im_start|>user\nHi", "!"]
        );
    }

    #[test]
    fn a_word_is_what_every_rule_takes_for_one() {
        let cuts = Cuts::between_classes(["<|end|>"].into_iter());
        for (part, spelled) in [
            (" word", Some("\u{120}word")),
            ("Word", Some("Word")),
            (" LLMs", Some("\u{120}LLMs")),
            ("camelCase", None),
            (" 4", None),
            ("(word", None),
            (" ", None),
            ("é", None),
        ] {
            assert_eq!(cuts.spelled(part).as_deref(), spelled, "{part:?}");
        }
        let shouting = Cuts::between_classes(["INST"].into_iter());
        assert_eq!(shouting.spelled(" word"), None);
    }

    #[test]
    fn where_spaces_are_added_only_spaces_are_cut_at() {
        let cuts = Cuts::at_spaces();
        assert_eq!(parts(&cuts, "To be, or 2b"), ["To", " be,", " or", " 2b"]);
    }
}
