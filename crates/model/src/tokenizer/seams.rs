//! Where a text can be cut so that its parts, tokenised apart, have the tokens of the whole.
//!
//! A tokenizer looks for its added tokens first (the leftmost, of those the longest) and tokenises what
//! lies between them piece by piece. So the start of an added token is a seam: nothing that is found
//! before it reaches over it, and what follows is found anew from there. The part after a seam begins with
//! that token, so that its text is not taken for the beginning of a prompt, where some tokenizers add a
//! space.
//!
//! Some added tokens swallow the white space beside them or match whole words only, for which they look
//! over a seam. Those are no seams, and a tokenizer with any of the latter kind has none at all.

use aho_corasick::{AhoCorasick, MatchKind};

/// Finds seams.
#[derive(Debug, Default)]
pub(super) struct Seams {
    /// Finds what the tokenizer finds; `None` if no text has seams.
    tokens: Option<AhoCorasick>,
    /// Whether each of these tokens begins at a seam.
    is_seam: Vec<bool>,
}

impl Seams {
    pub(super) fn of(tokenizer: &tokenizers::Tokenizer) -> Self {
        let added = tokenizer.get_added_tokens_decoder();
        if added.values().any(|token| token.single_word) {
            return Self::default();
        }
        // The others are looked for between these, and later.
        let found_first: Vec<_> = added.values().filter(|token| !token.normalized).collect();
        let is_seam: Vec<bool> = found_first
            .iter()
            .map(|token| !token.lstrip && !token.content.starts_with(char::is_whitespace))
            .collect();
        if !is_seam.contains(&true) {
            return Self::default();
        }
        let tokens = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(found_first.iter().map(|token| &token.content))
            .ok();
        Self { tokens, is_seam }
    }

    /// Byte offsets in ascending order, never 0.
    pub(super) fn find<'a>(&'a self, text: &'a str) -> impl Iterator<Item = usize> + 'a {
        self.tokens
            .iter()
            .flat_map(move |tokens| tokens.find_iter(text))
            .filter(|found| found.start() > 0)
            .filter(|found| self.is_seam.get(found.pattern().as_usize()) == Some(&true))
            .map(|found| found.start())
    }
}

#[cfg(test)]
mod tests {
    use crate::tokenizer::fixture::Fixture;
    use crate::{Specials, Tokenizer};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn added(id: u32, content: &str, lstrip: bool, rstrip: bool, normalized: bool) -> Value {
        json!({"id": id, "content": content, "single_word": false, "lstrip": lstrip,
               "rstrip": rstrip, "normalized": normalized, "special": !normalized})
    }

    /// A few merges, and added tokens of every kind.
    fn tokenizer(normalizer: Value, pre_tokenizer: Value, space: &str) -> Tokenizer {
        let (space_a, space_ab) = (format!("{space}a"), format!("{space}ab"));
        let fixture = Fixture {
            tokens: &[space, "Ċ", "\n", "ab", "abc", &space_a, "<|", &space_ab],
            merges: json!([
                ["a", "b"],
                ["ab", "c"],
                [space, "a"],
                ["<", "|"],
                [space, "ab"]
            ]),
            normalizer,
            pre_tokenizer,
        };
        fixture.with(|first| {
            let first = first as u32;
            json!([
                added(first, "<|a|>", false, false, false),
                added(first + 1, "<|a|><|b|>", false, false, false),
                added(first + 2, "<|b|>", false, false, false),
                added(first + 3, "<|left|>", true, false, false),
                added(first + 4, "<|right|>", false, true, false),
                added(first + 5, "<|norm|>", false, false, true),
            ])
        })
    }

    fn byte_level(add_prefix_space: bool) -> Tokenizer {
        let stage = json!({"type": "ByteLevel", "add_prefix_space": add_prefix_space,
                           "trim_offsets": true, "use_regex": true});
        tokenizer(Value::Null, stage, "Ġ")
    }

    fn metaspace(scheme: &str) -> Tokenizer {
        let stage = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false});
        tokenizer(Value::Null, stage, "▁")
    }

    fn prepending() -> Tokenizer {
        let stages = json!({"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]});
        tokenizer(stages, Value::Null, "▁")
    }

    fn any_text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("<|a|>"),
            Just("<|b|>"),
            Just("<|left|>"),
            Just("<|right|>"),
            Just("<|norm|>"),
            Just("<|"),
            Just("|>"),
            Just("a"),
            Just("ab"),
            Just("abc"),
            Just(" "),
            Just("  "),
            Just("\n"),
            Just("x1"),
            Just("<|a|"),
            Just("b|>"),
        ];
        proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn parts_cut_at_seams_have_the_tokens_of_the_whole(text in any_text()) {
            let tokenizers = [
                byte_level(false), byte_level(true), metaspace("first"), metaspace("always"),
                metaspace("never"), prepending(),
            ];
            for (which, tokenizer) in tokenizers.iter().enumerate() {
                let whole = tokenizer.encode(&text, Specials::PARSE).unwrap();
                let mut parts = Vec::new();
                let mut from = 0;
                for seam in tokenizer.seams(&text).chain([text.len()]) {
                    parts.extend(tokenizer.encode(&text[from..seam], Specials::PARSE).unwrap());
                    from = seam;
                }
                prop_assert_eq!(parts, whole, "tokenizer {} on {:?}", which, text);
            }
        }
    }

    #[test]
    fn seams_lie_before_special_tokens_and_nowhere_else() {
        let tokenizer = byte_level(false);
        let seams = |text| tokenizer.seams(text).collect::<Vec<_>>();
        assert_eq!(seams("<|a|>hi<|b|> <|left|>x"), [7]);
        assert_eq!(seams("plain text <|norm|>"), [0usize; 0]);
        assert_eq!(seams("x<|a|><|b|>y<|right|> z"), [1, 12]);
    }
}
