//! Text to tokens and back, one type for Hugging Face's `tokenizer.json` and for GGUF's metadata.
//!
//! Encoding is the work of the `tokenizers` crate, but for plain words, which are cut and merged here ([`words`]). Decoding is ours and works on bytes: every token
//! has exact bytes, the text of an answer is their concatenation, and whoever streams it only has to
//! wait for whole characters. So a streamed answer can never differ from one decoded at once.

mod agreement;
mod alphabet;
#[cfg(test)]
mod fixture;
mod gguf;
mod huggingface;
mod pieces;
mod scores;
mod seams;
mod trusted;
mod words;

use std::sync::OnceLock;

use crate::ModelError;
use crate::config::GenerationConfig;
use crate::gguf::Gguf;

pub(crate) use huggingface::{FolderTexts, read as from_huggingface};
use pieces::Pieces;
use seams::Seams;
use trusted::unless_it_panics;
use words::Words;

/// More tokens than any vocabulary has; a file that claims more is broken, and ids below it can be
/// used as indices without a thought for memory.
pub(crate) const MAX_VOCAB: usize = 1 << 20;

/// What to do about special tokens when encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Specials {
    /// Read special tokens written out in the text (a rendered chat template has them) as what they
    /// are. Otherwise they are text like any other.
    pub parse: bool,
    /// Add what the tokenizer puts around a text of its own accord, usually a token at the start.
    pub add: bool,
}

impl Specials {
    /// For rendered chat templates, which wrote everything themselves.
    pub const PARSE: Self = Self {
        parse: true,
        add: false,
    };
    /// For plain prompts, as `/v1/completions` takes them.
    pub const PARSE_AND_ADD: Self = Self {
        parse: true,
        add: true,
    };
    /// For text that is nothing but text.
    pub const NONE: Self = Self {
        parse: false,
        add: false,
    };
}

/// Turns text into tokens and back.
#[derive(Debug)]
pub struct Tokenizer {
    parsing: tokenizers::Tokenizer,
    /// A second one that takes special tokens for text. Made when first asked for: few ask.
    literal: OnceLock<tokenizers::Tokenizer>,
    /// Made when first asked for, too: only a router cuts prompts.
    seams: OnceLock<Seams>,
    /// `None` inside: this tokenizer's texts cannot be cut into words. Made when first asked for.
    words: OnceLock<Option<Words>>,
    pieces: Pieces,
    bos: Option<u32>,
    eos: Vec<u32>,
    /// Whether to put the BOS token in front ourselves (the crate does it for `tokenizer.json`).
    prepend_bos: bool,
    strips_leading_space: bool,
}

impl Tokenizer {
    /// Reads a `tokenizer.json` alone; which tokens begin and end a text stands in other files.
    pub fn from_json(file: &str, bytes: &[u8]) -> Result<Self, ModelError> {
        from_huggingface(
            file,
            bytes,
            &FolderTexts::default(),
            &GenerationConfig::default(),
        )
    }

    /// Builds the tokenizer that a GGUF file describes.
    pub fn from_gguf(gguf: &Gguf<'_>) -> Result<Self, ModelError> {
        gguf::read(gguf)
    }

    /// Token ids of `text`.
    pub fn encode(&self, text: &str, specials: Specials) -> Result<Vec<u32>, ModelError> {
        unless_it_panics(|| {
            if specials == Specials::PARSE
                && let Some(words) = self.words()
            {
                return words.encode(&self.parsing, text);
            }
            self.encode_whole(text, specials)
        })
        .map_err(|error| ModelError::Encode(error.to_string()))
    }

    /// Makes now what is otherwise made for the first text: with a large vocabulary it takes so long that somebody would
    /// wait for it.
    pub fn make_ready(&self) {
        self.words();
        self.seams.get_or_init(|| Seams::of(&self.parsing));
    }

    fn words(&self) -> Option<&Words> {
        let made = self.words.get_or_init(|| Words::of(&self.parsing));
        made.as_ref()
    }

    fn encode_whole(&self, text: &str, specials: Specials) -> tokenizers::Result<Vec<u32>> {
        let encoder = if specials.parse {
            &self.parsing
        } else {
            self.literal.get_or_init(|| {
                let mut literal = self.parsing.clone();
                literal.set_encode_special_tokens(true);
                literal
            })
        };
        let encoding = encoder.encode_fast(text, specials.add)?;
        let bos = self.bos.filter(|_| specials.add && self.prepend_bos);
        Ok(bos
            .into_iter()
            .chain(encoding.get_ids().iter().copied())
            .collect())
    }

    /// Byte offsets, ascending, at which `text` can be cut so that its parts, each read with
    /// [`Specials::PARSE`], have the tokens of the whole.
    pub fn seams<'a>(&'a self, text: &'a str) -> impl Iterator<Item = usize> + 'a {
        self.seams
            .get_or_init(|| Seams::of(&self.parsing))
            .find(text)
    }

    /// The text of `ids`; ids that do not exist add nothing. Bytes that are not UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut bytes = Vec::new();
        let shown = ids
            .iter()
            .filter(|&&id| !(skip_special && self.is_special(id)));
        for &id in shown {
            bytes.extend_from_slice(self.token_bytes(id).unwrap_or_default());
        }
        let text = match bytes.strip_prefix(b" ") {
            Some(rest) if self.strips_leading_space => rest,
            _ => &bytes,
        };
        String::from_utf8_lossy(text).into_owned()
    }

    /// The bytes that a token adds to the text; a special token gives its own name. `None`: no such
    /// token. Bytes of one character may be spread over several tokens.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.pieces.bytes(id)
    }

    /// Whether a token is a control token rather than text.
    pub fn is_special(&self, id: u32) -> bool {
        self.pieces.is_special(id)
    }

    /// A token's bytes as text for people to read; incomplete characters become U+FFFD.
    pub fn token_text(&self, id: u32) -> String {
        String::from_utf8_lossy(self.token_bytes(id).unwrap_or_default()).into_owned()
    }

    /// One more than the largest id. The model's rows of logits may be longer.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// Tokens that end a text.
    pub fn eos(&self) -> &[u32] {
        &self.eos
    }

    /// Whether [`Tokenizer::decode`] drops one space at the very start: such tokenizers put one there
    /// when encoding.
    pub fn strips_leading_space(&self) -> bool {
        self.strips_leading_space
    }
}
