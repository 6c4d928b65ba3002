//! How tokenizers cut text into words before they merge anything, for text of ASCII and of Latin letters ([`super::latin`]).
//!
//! Tokenizers say it as a regular expression. The few that are in use are known here by their text and written out as what they
//! do: a handful of comparisons a word. Beyond such text nothing is promised, because there the classes of characters
//! are the business of whoever runs the expression.

use serde_json::Value;

use super::super::gguf;

/// GPT-2's rule, in the spelling of `tokenizer.json`.
pub(super) const GPT2: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// A rule for cutting text into words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Split {
    Gpt2,
    /// GPT-2's on what lies between digits, and each digit alone or all in a row as one.
    DigitsFirst {
        alone: bool,
    },
    Llama3,
    Qwen2,
    Tekken,
}

/// Words that are cut off their apostrophe's left side.
const CONTRACTIONS: [&[u8]; 7] = [b"s", b"t", b"re", b"ve", b"m", b"ll", b"d"];

/// A digit that stands alone, as most rules have it.
const ALONE: usize = 1;

/// Digits of a number that Llama 3 takes together.
const LLAMA3_DIGITS: usize = 3;

impl Split {
    /// The rule of a pre-tokenizer that knows no other than these and then turns bytes into its alphabet.
    pub(super) fn of(pre_tokenizer: &Value) -> Option<Self> {
        let (first, bytes) = match stages(pre_tokenizer) {
            [bytes] => (None, bytes),
            [first, bytes] => (Some(first), bytes),
            _ => return None,
        };
        if !is(bytes, "ByteLevel") {
            return None;
        }
        match (first, flag(bytes, "use_regex")) {
            (None, true) => Some(Self::Gpt2),
            (Some(first), true) if is(first, "Digits") => Some(Self::DigitsFirst {
                alone: flag(first, "individual_digits"),
            }),
            (Some(first), false) => Self::named(split_rule(first)?),
            _ => None,
        }
    }

    /// By its regular expression.
    pub(super) fn named(rule: &str) -> Option<Self> {
        match rule {
            gguf::LLAMA3 => Some(Self::Llama3),
            gguf::QWEN2 => Some(Self::Qwen2),
            gguf::TEKKEN => Some(Self::Tekken),
            GPT2 => Some(Self::Gpt2),
            _ => None,
        }
    }

    /// Whether it tells large letters from small ones, which of those beyond ASCII is not known here.
    pub(super) fn minds_case(self) -> bool {
        self == Self::Tekken
    }

    /// The length of the first word of a text; 0 only of an empty one. What is not ASCII in it is letters.
    pub(super) fn first(self, text: &[u8]) -> usize {
        self.contraction(text)
            .or_else(|| self.letters(text))
            .or_else(|| self.digits(text))
            .or_else(|| self.marks(text))
            .unwrap_or_else(|| self.space(text))
    }

    fn is_gpt2s(self) -> bool {
        matches!(self, Self::Gpt2 | Self::DigitsFirst { .. })
    }

    fn contraction(self, text: &[u8]) -> Option<usize> {
        let rest = text.strip_prefix(b"'")?;
        let begins = |word: &&&[u8]| {
            let Some(begin) = rest.get(..word.len()) else {
                return false;
            };
            match self {
                Self::Tekken => false,
                Self::Llama3 | Self::Qwen2 => begin.eq_ignore_ascii_case(word),
                Self::Gpt2 | Self::DigitsFirst { .. } => begin == **word,
            }
        };
        let word = CONTRACTIONS.iter().find(begins)?;
        Some(1 + word.len())
    }

    /// Letters, behind a space or, by the newer rules, behind any one sign.
    fn letters(self, text: &[u8]) -> Option<usize> {
        let &first = text.first()?;
        let opens = match self.is_gpt2s() {
            true => first == b' ',
            false => !is_letter(first) && !first.is_ascii_digit() && !is_line_end(first),
        };
        let before = usize::from(opens);
        let letters = text.get(before..)?;
        let length = match self {
            Self::Tekken => {
                let large = run(letters, |byte| byte.is_ascii_uppercase());
                let small = letters.get(large..).unwrap_or_default();
                large + run(small, |byte| byte.is_ascii_lowercase())
            }
            _ => run(letters, is_letter),
        };
        (length > 0).then_some(before + length)
    }

    fn digits(self, text: &[u8]) -> Option<usize> {
        let opens = self == Self::Gpt2 && text.first() == Some(&b' ');
        let before = usize::from(opens);
        let most = match self {
            Self::Gpt2 | Self::DigitsFirst { alone: false } => usize::MAX,
            Self::Llama3 => LLAMA3_DIGITS,
            Self::Qwen2 | Self::Tekken | Self::DigitsFirst { alone: true } => ALONE,
        };
        let length = run(text.get(before..)?, |byte| byte.is_ascii_digit()).min(most);
        (length > 0).then_some(before + length)
    }

    /// Other visible signs, perhaps behind a space, and by the newer rules with the line ends after them.
    fn marks(self, text: &[u8]) -> Option<usize> {
        let before = usize::from(text.first() == Some(&b' '));
        let is_mark = |byte: u8| !is_letter(byte) && !byte.is_ascii_digit() && !is_space(byte);
        let length = run(text.get(before..)?, is_mark);
        let end = before + length;
        let after = text.get(end..).unwrap_or_default();
        let taken = match self {
            Self::Gpt2 | Self::DigitsFirst { .. } => 0,
            Self::Llama3 | Self::Qwen2 => run(after, is_line_end),
            Self::Tekken => run(after, |byte| is_line_end(byte) || byte == b'/'),
        };
        (length > 0).then_some(end + taken)
    }

    /// White space: to its last line end by the newer rules, or else all but the one before the next word.
    fn space(self, text: &[u8]) -> usize {
        let length = run(text, is_space);
        let space = text.get(..length).unwrap_or_default();
        if !self.is_gpt2s()
            && let Some(last) = space.iter().rposition(|byte| is_line_end(*byte))
        {
            return last + 1;
        }
        let ends_here = match text.get(length) {
            None => true,
            // What lies before a digit is a text of its own.
            Some(next) => matches!(self, Self::DigitsFirst { .. }) && next.is_ascii_digit(),
        };
        if ends_here || length <= 1 {
            return length;
        }
        length - 1
    }
}

/// Whether a pre-tokenizer puts a space before texts that have none.
pub(super) fn adds_space(pre_tokenizer: &Value) -> bool {
    let mut stages = stages(pre_tokenizer).iter();
    stages.any(|stage| flag(stage, "add_prefix_space"))
}

/// The stages of a pre-tokenizer: itself, or the members of a sequence.
fn stages(pre_tokenizer: &Value) -> &[Value] {
    let members = pre_tokenizer.get("pretokenizers").and_then(Value::as_array);
    members.map_or(std::slice::from_ref(pre_tokenizer), Vec::as_slice)
}

fn run(text: &[u8], belongs: impl Fn(u8) -> bool) -> usize {
    let end = text.iter().position(|byte| !belongs(*byte));
    end.unwrap_or(text.len())
}

/// A letter, or a byte of one.
fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || !byte.is_ascii()
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// What `\s` means: the vertical tab, too, which Rust does not count.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == b'\x0b'
}

fn is(stage: &Value, kind: &str) -> bool {
    stage.get("type").and_then(Value::as_str) == Some(kind)
}

fn flag(stage: &Value, name: &str) -> bool {
    stage.get(name).and_then(Value::as_bool) == Some(true)
}

/// The regular expression that a stage cuts by, if it keeps everything it finds as words.
fn split_rule(stage: &Value) -> Option<&str> {
    let keeps = is(stage, "Split")
        && stage.get("behavior").and_then(Value::as_str) == Some("Isolated")
        && stage.get("invert").and_then(Value::as_bool) == Some(false);
    let rule = stage.pointer("/pattern/Regex").and_then(Value::as_str);
    rule.filter(|_| keeps)
}
