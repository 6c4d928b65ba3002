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
