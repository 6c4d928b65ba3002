//! Words that were tokenised before are not tokenised again.
//!
//! The tokenizers of today cut a text into words before they merge anything, and all of their rules have this in common: a
//! space between a visible character and a letter begins a new word, whatever else stands in the text. No rule lets a word go on
//! over such a space, none looks back, and what looks ahead looks for the end of white space, of which there is one. So a text may be cut
//! there, and its parts have the tokens of the whole. The parts are mostly single words, which come again and again:
//! looking one up takes a thirtieth of the time that tokenising it does.
//!
//! This holds for rules that are known here by their text. A tokenizer with another rule, or with added tokens that reach
//! over white space, is left alone.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use serde_json::Value;
use tokenizers::ModelWrapper;

/// Longer parts are tokenised each time: they hardly ever come again.
const MAX_WORD_BYTES: usize = 32;

/// Words that are remembered. Beyond this only those already known are quick; a language has fewer in common use.
const MAX_WORDS: usize = 1 << 16;

/// Unknown words of one text that are tokenised one by one to be remembered; alone each of them takes longer than
/// in its text, so what comes after them is tokenised as it stands.
const MAX_LEARNED_AT_ONCE: usize = 128;

/// Rules that cut before a lone space, in the spelling of `tokenizer.json`.
pub(super) const KNOWN_RULES: [&str; 4] = [
    super::gguf::LLAMA3,
    super::gguf::QWEN2,
    super::gguf::TEKKEN,
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
];

/// The tokens of words seen before.
#[derive(Debug, Default)]
pub(super) struct Words {
    known: RwLock<HashMap<Box<str>, Box<[u32]>>>,
}

/// Whether texts for this tokenizer may be cut at [`cut`].
pub(super) fn are_words_apart(tokenizer: &tokenizers::Tokenizer) -> bool {
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
    plain_model
        && tokenizer.get_truncation().is_none()
        && tokenizer.get_padding().is_none()
        && !added.values().any(reaches_over)
        // Composing accents stops at a space.
        && normalizer.is_none_or(|stage| is(&stage, "NFC"))
        && pre_tokenizer.is_some_and(|stage| cuts_before_lone_spaces(&stage))
}

fn is(stage: &Value, kind: &str) -> bool {
    stage.get("type").and_then(Value::as_str) == Some(kind)
}

fn cuts_before_lone_spaces(stage: &Value) -> bool {
    let has_rule = |bytes: &Value| {
        is(bytes, "ByteLevel") && bytes.get("use_regex").and_then(Value::as_bool) == Some(true)
    };
    if has_rule(stage) {
        return true;
    }
    let stages = stage.get("pretokenizers").and_then(Value::as_array);
    match stages.map(Vec::as_slice) {
        Some([first, bytes]) if is(bytes, "ByteLevel") => {
            (is(first, "Digits") && has_rule(bytes)) || is_known_rule(first)
        }
        _ => false,
    }
}

fn is_known_rule(stage: &Value) -> bool {
    let rule = stage.pointer("/pattern/Regex").and_then(Value::as_str);
    is(stage, "Split")
        && stage.get("behavior").and_then(Value::as_str) == Some("Isolated")
        && stage.get("invert").and_then(Value::as_bool) == Some(false)
        && rule.is_some_and(|rule| KNOWN_RULES.contains(&rule))
}

/// The length of the first part of `text`.
fn cut(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut from = 1;
    while let Some(step) = memchr::memchr(b' ', bytes.get(from..).unwrap_or_default()) {
        let at = from + step;
        let before = bytes.get(at - 1).is_some_and(u8::is_ascii_graphic);
        let after = bytes.get(at + 1).is_some_and(u8::is_ascii_alphabetic);
        if before && after {
            return at;
        }
        from = at + 1;
    }
    bytes.len()
}

impl Words {
    /// The tokens of `text`, of which `tokenize` makes those of a part.
    pub(super) fn encode<E>(
        &self,
        text: &str,
        tokenize: impl Fn(&str) -> Result<Vec<u32>, E>,
    ) -> Result<Vec<u32>, E> {
        let mut tokens = Vec::with_capacity(text.len() / 4 + 8);
        let mut learned: Vec<(Box<str>, Box<[u32]>)> = Vec::new();
        {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            // What begins at `open` and ends at `at` waits to be tokenised as one.
            let (mut open, mut at) = (0, 0);
            while at < text.len() {
                let rest = text.get(at..).unwrap_or_default();
                let part = rest.get(..cut(rest)).unwrap_or(rest);
                let seen = known.get(part);
                let is_to_learn = seen.is_none()
                    && part.len() <= MAX_WORD_BYTES
                    && learned.len() < MAX_LEARNED_AT_ONCE;
                if seen.is_some() || is_to_learn {
                    if open < at {
                        tokens.extend(tokenize(text.get(open..at).unwrap_or_default())?);
                    }
                    open = at + part.len();
                }
                if let Some(seen) = seen {
                    tokens.extend_from_slice(seen);
                } else if is_to_learn {
                    let own = tokenize(part)?;
                    tokens.extend_from_slice(&own);
                    learned.push((part.into(), own.into()));
                }
                at += part.len();
            }
            if open < at {
                tokens.extend(tokenize(text.get(open..).unwrap_or_default())?);
            }
        }
        if !learned.is_empty() {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            let room = MAX_WORDS.saturating_sub(known.len());
            known.extend(learned.into_iter().take(room));
        }
        Ok(tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Specials, Tokenizer};
    use proptest::prelude::*;
    use serde_json::json;

    fn tokenizer(pre_tokenizer: &Value, rstrip: bool) -> Tokenizer {
        let mut vocab = serde_json::Map::new();
        let mut add = |token: &str| {
            let id = vocab.len();
            vocab.entry(token).or_insert(json!(id));
        };
        (b'!'..=b'~').for_each(|byte| add(&char::from(byte).to_string()));
        for token in [
            "Ġ", "Ċ", "Ã", "©", "Ģ", "Â", "ab", "abc", "Ġa", "Ġab", "ĠĠ", "<|", "'s",
        ] {
            add(token);
        }
        let merges = json!([
            ["a", "b"],
            ["ab", "c"],
            ["Ġ", "a"],
            ["Ġ", "ab"],
            ["Ġ", "Ġ"],
            ["<", "|"],
            ["'", "s"]
        ]);
        let added = json!([{"id": vocab.len(), "content": "<|a|>", "single_word": false, "lstrip": false,
                            "rstrip": rstrip, "normalized": false, "special": true}]);
        let file = json!({
            "version": "1.0", "added_tokens": added, "normalizer": null, "pre_tokenizer": pre_tokenizer,
            "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            "model": {"type": "BPE", "vocab": vocab, "merges": merges},
        });
        Tokenizer::from_json("tokenizer.json", &serde_json::to_vec(&file).unwrap()).unwrap()
    }

    fn byte_level(add_prefix_space: bool, use_regex: bool) -> Value {
        json!({"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": true, "use_regex": use_regex})
    }

    fn split_by(rule: &str) -> Value {
        json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": rule}, "behavior": "Isolated", "invert": false},
            byte_level(false, false)]})
    }

    fn known() -> Vec<Tokenizer> {
        let digits = json!({"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": true}, byte_level(false, true)]});
        let mut stages = vec![byte_level(false, true), byte_level(true, true), digits];
        stages.extend(KNOWN_RULES.map(split_by));
        stages.iter().map(|stage| tokenizer(stage, false)).collect()
    }

    #[test]
    fn only_rules_that_are_known_are_cut_by() {
        for tokenizer in known() {
            assert!(are_words_apart(&tokenizer.parsing));
        }
        let reaching = tokenizer(&byte_level(false, true), true);
        assert!(!are_words_apart(&reaching.parsing));
        for stage in [Value::Null, split_by(r"\w+ \w+"), byte_level(false, false)] {
            assert!(!are_words_apart(&tokenizer(&stage, false).parsing));
        }
    }

    #[test]
    fn a_text_is_cut_before_words_only() {
        let mut parts = Vec::new();
        let mut rest = "To be,  or not 2 be\n if\u{a0} x é a<|a|> b";
        while !rest.is_empty() {
            let (part, after) = rest.split_at(cut(rest));
            parts.push(part);
            rest = after;
        }
        assert_eq!(
            parts,
            [
                "To",
                " be,  or",
                " not 2",
                " be\n if\u{a0} x é a<|a|>",
                " b"
            ]
        );
    }

    fn any_text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("a"),
            Just("ab"),
            Just("abc"),
            Just("A"),
            Just("b"),
            Just(" "),
            Just(" a"),
            Just(" ab"),
            Just("  "),
            Just("\n"),
            Just("\r\n"),
            Just("\t"),
            Just("'s"),
            Just("'"),
            Just("."),
            Just("1"),
            Just("23"),
            Just("<|a|>"),
            Just("<|"),
            Just("é"),
            Just("\u{301}"),
            Just("\u{a0}"),
            Just("\u{3000}"),
            Just("/"),
        ];
        proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn words_have_the_tokens_they_have_in_their_text(texts in proptest::collection::vec(any_text(), 1..4)) {
            for (which, tokenizer) in known().iter().enumerate() {
                for text in &texts {
                    let whole = tokenizer.parsing.encode_fast(text.as_str(), false).unwrap();
                    // Twice: learning, and knowing.
                    for _ in 0..2 {
                        let tokens = tokenizer.encode(text, Specials::PARSE).unwrap();
                        prop_assert_eq!(&tokens, whole.get_ids(), "tokenizer {} on {:?}", which, text);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let words = Words::default();
        let lengths = |part: &str| Ok::<_, ()>(vec![part.len() as u32]);
        for group in 0..=MAX_WORDS / MAX_LEARNED_AT_ONCE {
            let first = group * MAX_LEARNED_AT_ONCE;
            let numbers = first..first + MAX_LEARNED_AT_ONCE;
            let text: String = numbers.map(|word| format!(" w{word}")).collect();
            let total: u32 = words.encode(&text, lengths).unwrap().iter().sum();
            assert_eq!(total as usize, text.len());
        }
        assert_eq!(words.known.read().unwrap().len(), MAX_WORDS);
    }
}
