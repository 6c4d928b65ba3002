//! A vocabulary of 64 tokens with everything that makes text difficult.

use engine::Vocabulary;

/// Letters, words that overlap, halves of characters, and special tokens.
#[derive(Debug, Clone, Copy, Default)]
pub struct ToyVocabulary;

impl ToyVocabulary {
    /// Number of tokens.
    pub const SIZE: usize = 64;
    /// Ends a text.
    pub const EOS: u32 = 63;
}

const LETTERS: &[u8; 26] = b"abcdefghijklmnopqrstuvwxyz";

const OTHERS: [&[u8]; 36] = [
    b" ",
    b" a",
    b" b",
    b"ab",
    b"bc",
    b"abc",
    b" the",
    b"\n",
    b".",
    b"!",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b":",
    b",",
    b"0",
    b"1",
    b"2",
    b"3",
    b"true",
    b"null",
    b"{\"",
    b"\":",
    // "ä", "€" and "😀" in pieces.
    b"\xc3",
    b"\xa4",
    b"\xe2",
    b"\x82",
    b"\xac",
    b"\xf0\x9f",
    b"\x98\x80",
    b"stop",
    b"st",
    b"op",
    b" END",
];

impl Vocabulary for ToyVocabulary {
    fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        match id as usize {
            letter @ 0..26 => Some(&LETTERS[letter..=letter]),
            other @ 26..62 => Some(OTHERS[other - 26]),
            62 => Some(b"<s>"),
            63 => Some(b"</s>"),
            _ => None,
        }
    }

    fn is_special(&self, id: u32) -> bool {
        id == 62 || id == 63
    }

    fn vocab_size(&self) -> usize {
        Self::SIZE
    }

    fn eos(&self) -> &[u32] {
        &[Self::EOS]
    }
}
