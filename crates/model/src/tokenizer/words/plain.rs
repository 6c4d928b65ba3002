//! Text of which everything is known here: ASCII without any added token in it. It is tokenised without the `tokenizers` crate, which
//! takes ten times as long for a single word: for what it makes ready to tell where in the text each token stands.

use tokenizers::ModelWrapper;

use super::merges::{Bench, Merges};
use super::split::Split;

/// Tokenises plain parts of texts.
#[derive(Debug)]
pub(super) struct Plain {
    split: Split,
    merges: Merges,
    /// The characters that added tokens begin with, as bits.
    begins_added: u128,
}

impl Plain {
    /// For a tokenizer that cuts by this rule; `None` if it does more than to cut and to merge.
    pub(super) fn of(tokenizer: &tokenizers::Tokenizer, split: Split) -> Option<Self> {
        let ModelWrapper::BPE(model) = tokenizer.get_model() else {
            return None;
        };
        let added = tokenizer.get_added_tokens_decoder();
        let begins = added
            .values()
            .filter_map(|token| token.content.bytes().next());
        let begins_added = begins
            .filter(u8::is_ascii)
            .fold(0, |bits, byte| bits | 1 << byte);
        Some(Self {
            split,
            merges: Merges::of(model)?,
            begins_added,
        })
    }

    /// Whether a part is plain.
    pub(super) fn holds(&self, part: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii() && self.begins_added >> byte & 1 == 0;
        part.bytes().all(is_plain)
    }

    /// Appends the tokens of a plain part; false, with nothing appended, if they have to be had elsewhere.
    pub(super) fn encode(
        &self,
        tokenizer: &tokenizers::Tokenizer,
        part: &str,
        bench: &mut Bench,
        tokens: &mut Vec<u32>,
    ) -> bool {
        let ModelWrapper::BPE(model) = tokenizer.get_model() else {
            return false;
        };
        let before = tokens.len();
        let mut rest = part.as_bytes();
        while !rest.is_empty() {
            // A word has a byte at least, or this would not end.
            let (word, after) = rest.split_at(self.split.first(rest).clamp(1, rest.len()));
            if !self.merges.encode(model, word, bench, tokens) {
                tokens.truncate(before);
                return false;
            }
            rest = after;
        }
        true
    }
}
