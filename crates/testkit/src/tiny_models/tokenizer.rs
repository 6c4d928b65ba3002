//! The vocabulary of tiny models: every byte, three special tokens and a few words.
//!
//! It is the byte-level BPE of GPT-2: bytes are written as printable characters, and a word exists as
//! a token together with all its prefixes, so that the merges that build it are the prefixes in order.

use std::collections::HashSet;

/// Ends a document.
pub const END_OF_TEXT: &str = "<|endoftext|>";
/// Opens a message.
pub const BEGIN_OF_TURN: &str = "<|im_start|>";
/// Closes a message; the end-of-text token of tiny models.
pub const END_OF_TURN: &str = "<|im_end|>";

/// A ChatML template, as small ones in the wild are written.
pub const CHAT_TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

const WORDS: [&str; 12] = [
    " the", " and", " of", " to", " model", " token", " draft", "Hello", " world", "ing", "tion",
    " answer",
];

pub(super) struct Vocabulary {
    /// In the order of their ids, as they stand in files.
    pub(super) tokens: Vec<String>,
    pub(super) merges: Vec<(String, String)>,
    pub(super) specials: usize,
}

impl Vocabulary {
    pub(super) fn new() -> Self {
        let specials = [END_OF_TEXT, BEGIN_OF_TURN, END_OF_TURN];
        let mut tokens: Vec<String> = specials.map(str::to_owned).to_vec();
        tokens.extend((0..=u8::MAX).map(|byte| printable(byte).to_string()));
        let mut known: HashSet<String> = tokens.iter().cloned().collect();
        let mut merges = Vec::new();
        for word in WORDS {
            let characters: Vec<char> = word.bytes().map(printable).collect();
            let mut prefix = String::new();
            for character in characters {
                let longer = format!("{prefix}{character}");
                if !prefix.is_empty() && known.insert(longer.clone()) {
                    merges.push((prefix, character.to_string()));
                    tokens.push(longer.clone());
                }
                prefix = longer;
            }
        }
        Self {
            tokens,
            merges,
            specials: specials.len(),
        }
    }

    pub(super) fn id(&self, token: &str) -> u32 {
        let id = self.tokens.iter().position(|known| known == token);
        u32::try_from(id.unwrap_or_default()).unwrap_or_default()
    }
}

/// GPT-2's alphabet: printable bytes stand for themselves, the others for characters from U+0100 on.
fn printable(byte: u8) -> char {
    let stands_for_itself = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if stands_for_itself(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|&b| !stands_for_itself(b)).count() as u32;
    char::from_u32(0x100 + rank).unwrap_or(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_is_that_of_gpt2() {
        assert_eq!(printable(b' '), 'Ġ');
        assert_eq!(printable(b'\n'), 'Ċ');
        assert_eq!(printable(0xAD), 'Ń');
        assert_eq!(printable(b'a'), 'a');
    }

    #[test]
    fn tokens_are_unique() {
        let vocabulary = Vocabulary::new();
        let unique: HashSet<&String> = vocabulary.tokens.iter().collect();
        assert_eq!(unique.len(), vocabulary.tokens.len());
    }
}
