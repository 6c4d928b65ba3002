//! What the engine needs to know of a tokenizer: the bytes behind each token.

/// The tokens of a model, as far as generating text needs them. A trait, so that tests can bring a
/// vocabulary of a few tokens.
pub trait Vocabulary: Send + Sync {
    /// The bytes that the token stands for; for a special token, its written form. `None`: no such token.
    fn token_bytes(&self, id: u32) -> Option<&[u8]>;

    /// Whether the token is a marker rather than text.
    fn is_special(&self, id: u32) -> bool;

    /// Number of token ids.
    fn vocab_size(&self) -> usize;

    /// The tokens with which the model ends its text.
    fn eos(&self) -> &[u32];

    /// Whether the first word of a text carries a space that is not part of the text, as in
    /// SentencePiece vocabularies.
    fn strips_leading_space(&self) -> bool {
        false
    }
}

impl Vocabulary for model::Tokenizer {
    fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.token_bytes(id)
    }

    fn is_special(&self, id: u32) -> bool {
        self.is_special(id)
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size()
    }

    fn eos(&self) -> &[u32] {
        self.eos()
    }

    fn strips_leading_space(&self) -> bool {
        self.strips_leading_space()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::Vocabulary;

    /// One token for each byte, and an end.
    pub(crate) struct Bytes;

    pub(crate) const END: u32 = 256;

    static BYTES: [u8; 256] = {
        let mut bytes = [0; 256];
        let mut i = 0;
        while i < 256 {
            bytes[i] = i as u8;
            i += 1;
        }
        bytes
    };

    impl Vocabulary for Bytes {
        fn token_bytes(&self, id: u32) -> Option<&[u8]> {
            match id {
                END => Some(b"<end>"),
                _ => BYTES.get(id as usize).map(std::slice::from_ref),
            }
        }

        fn is_special(&self, id: u32) -> bool {
            id == END
        }

        fn vocab_size(&self) -> usize {
            257
        }

        fn eos(&self) -> &[u32] {
            &[END]
        }
    }

    /// A few words as SentencePiece would have them.
    pub(crate) struct Words;

    const WORDS: [&str; 4] = ["<s>", "</s>", " hello", "x"];

    impl Words {
        pub(crate) fn id(word: &str) -> u32 {
            WORDS.iter().position(|w| *w == word).unwrap() as u32
        }
    }

    impl Vocabulary for Words {
        fn token_bytes(&self, id: u32) -> Option<&[u8]> {
            WORDS.get(id as usize).map(|w| w.as_bytes())
        }

        fn is_special(&self, id: u32) -> bool {
            id < 2
        }

        fn vocab_size(&self) -> usize {
            WORDS.len()
        }

        fn eos(&self) -> &[u32] {
            &[1]
        }

        fn strips_leading_space(&self) -> bool {
            true
        }
    }
}
