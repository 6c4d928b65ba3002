//! Text of which everything is known here: ASCII and Latin letters, without any added token in it. It is tokenised without the
//! `tokenizers` crate, most of whose time goes into being able to tell where in the text each token stands.

use tokenizers::ModelWrapper;

use super::latin;
use super::merges::{Bench, Merges};
use super::split::Split;

/// Tokenises plain parts of texts.
#[derive(Debug)]
pub(super) struct Plain {
    split: Split,
    merges: Merges,
    /// The ASCII characters that added tokens begin with, as bits.
    begins_added: u128,
}

impl Plain {
    /// For a tokenizer that cuts by this rule; `None` if it does more than to cut and to merge.
    pub(super) fn of(tokenizer: &tokenizers::Tokenizer, split: Split) -> Option<Self> {
        let ModelWrapper::BPE(model) = tokenizer.get_model() else {
            return None;
        };
        let added = tokenizer.get_added_tokens_decoder();
        let mut begins_added = 0;
        for token in added.values() {
            // One that begins with a letter beyond ASCII would have to be looked for in words.
            let first = token.content.bytes().next().filter(u8::is_ascii)?;
            begins_added |= 1 << first;
        }
        Some(Self {
            split,
            merges: Merges::of(model)?,
            begins_added,
        })
    }

    /// Whether a part is plain.
    pub(super) fn holds(&self, part: &str) -> bool {
        let mut rest = part.as_bytes();
        while let Some((&first, after)) = rest.split_first() {
            if !first.is_ascii() {
                if self.split.minds_case() || !latin::begins(rest) {
                    return false;
                }
                rest = after.get(1..).unwrap_or_default();
                continue;
            }
            if self.begins_added >> first & 1 == 1 {
                return false;
            }
            rest = after;
        }
        true
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
