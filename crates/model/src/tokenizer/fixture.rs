//! Small tokenizers for tests.

use serde_json::{Value, json};

use super::Tokenizer;

/// What a test's tokenizer has besides all printable ASCII characters.
pub(super) struct Fixture<'a> {
    pub(super) tokens: &'a [&'a str],
    pub(super) merges: Value,
    pub(super) normalizer: Value,
    pub(super) pre_tokenizer: Value,
}

impl Fixture<'_> {
    /// With tokens that are added from this id on.
    pub(super) fn with(self, added: impl FnOnce(usize) -> Value) -> Tokenizer {
        let mut vocab = serde_json::Map::new();
        let mut add = |token: &str| {
            let id = vocab.len();
            vocab.entry(token).or_insert(json!(id));
        };
        (b'!'..=b'~').for_each(|byte| add(&char::from(byte).to_string()));
        self.tokens.iter().for_each(|token| add(token));
        let file = json!({
            "version": "1.0", "added_tokens": added(vocab.len()), "normalizer": self.normalizer,
            "pre_tokenizer": self.pre_tokenizer,
            "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            "model": {"type": "BPE", "vocab": vocab, "merges": self.merges},
        });
        Tokenizer::from_json("tokenizer.json", &serde_json::to_vec(&file).unwrap()).unwrap()
    }
}
