//! Words that were tokenised before are not tokenised again.
//!
//! A text is cut where its parts have the tokens of the whole ([`Cuts`] says where). The parts are mostly single words, which
//! come again and again: looking one up takes a thirtieth of the time that tokenising it does.

mod cuts;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock, TryLockError};

use cuts::Cuts;

/// Longer parts are tokenised each time: they hardly ever come again.
const MAX_WORD_BYTES: usize = 32;

/// Words that are remembered. Beyond this only those already known are quick; a language has fewer in common use.
const MAX_WORDS: usize = 1 << 16;

/// Unknown words of one text that are tokenised one by one to be remembered; alone each of them takes longer than
/// in its text, so what comes after them is tokenised as it stands.
const MAX_LEARNED_AT_ONCE: usize = 128;

/// The tokens of words seen before.
#[derive(Debug)]
pub(super) struct Words {
    cuts: Cuts,
    known: RwLock<HashMap<Box<str>, Box<[u32]>, foldhash::fast::RandomState>>,
}

impl Words {
    /// For a tokenizer; `None` if nothing is known of how it finds words.
    pub(super) fn of(tokenizer: &tokenizers::Tokenizer) -> Option<Self> {
        Cuts::of(tokenizer).map(|cuts| Self {
            cuts,
            known: RwLock::default(),
        })
    }

    /// How a part of a text is spelled for the model alone, if it is a single word: nothing has to be looked for in it.
    pub(super) fn spelled<'a>(&self, part: &'a str) -> Option<Cow<'a, str>> {
        self.cuts.spelled(part)
    }

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
                let part = rest.get(..self.cuts.first(rest)).unwrap_or(rest);
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
        self.learn(learned);
        Ok(tokens)
    }

    /// Nobody waits to learn: whoever reads may be at it for long, and will meet the words again.
    fn learn(&self, learned: Vec<(Box<str>, Box<[u32]>)>) {
        if learned.is_empty() {
            return;
        }
        let mut known = match self.known.try_write() {
            Ok(known) => known,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let room = MAX_WORDS.saturating_sub(known.len());
        known.extend(learned.into_iter().take(room));
    }
}

#[cfg(test)]
mod tests {
    use super::cuts::KNOWN_RULES;
    use super::*;
    use crate::tokenizer::fixture::Fixture;
    use crate::{Specials, Tokenizer};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn tokenizer(pre_tokenizer: &Value, rstrip: bool) -> Tokenizer {
        let fixture = Fixture {
            tokens: &[
                "Ġ", "Ċ", "Ã", "©", "Ģ", "Â", "ab", "abc", "Ġa", "Ġab", "ĠĠ", "<|", "'s",
            ],
            merges: json!([
                ["a", "b"],
                ["ab", "c"],
                ["Ġ", "a"],
                ["Ġ", "ab"],
                ["Ġ", "Ġ"],
                ["<", "|"],
                ["'", "s"]
            ]),
            normalizer: Value::Null,
            pre_tokenizer: pre_tokenizer.clone(),
        };
        fixture.with(|id| {
            json!([{"id": id, "content": "<|a|>", "single_word": false, "lstrip": false,
                    "rstrip": rstrip, "normalized": false, "special": true}])
        })
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
            assert!(Cuts::of(&tokenizer.parsing).is_some());
        }
        let reaching = tokenizer(&byte_level(false, true), true);
        assert!(Cuts::of(&reaching.parsing).is_none());
        for stage in [Value::Null, split_by(r"\w+ \w+"), byte_level(false, false)] {
            assert!(Cuts::of(&tokenizer(&stage, false).parsing).is_none());
        }
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
            Just(","),
            Just("("),
            Just("\""),
            Just("=\u{338}"),
            Just("<|a|> b"),
            Just("a|"),
            Just(" 4"),
            Just("re"),
            Just("\u{2014}"),
            Just("\u{2019}s"),
            Just("a\nb"),
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

    /// A word of its own for each number.
    fn word(number: usize) -> String {
        let letter = |place: u32| char::from(b'a' + (number / 26_usize.pow(place) % 26) as u8);
        std::iter::once(' ').chain((0..4).map(letter)).collect()
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let words = Words {
            cuts: Cuts::of(&known()[0].parsing).unwrap(),
            known: RwLock::default(),
        };
        let lengths = |part: &str| Ok::<_, ()>(vec![part.len() as u32]);
        for group in 0..=MAX_WORDS / MAX_LEARNED_AT_ONCE {
            let first = group * MAX_LEARNED_AT_ONCE;
            let numbers = first..first + MAX_LEARNED_AT_ONCE;
            let text: String = numbers.map(word).collect();
            let total: u32 = words.encode(&text, lengths).unwrap().iter().sum();
            assert_eq!(total as usize, text.len());
        }
        assert_eq!(words.known.read().unwrap().len(), MAX_WORDS);
    }
}
