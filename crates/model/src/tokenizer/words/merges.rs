//! Joins the bytes of a word into tokens: of all neighbours that may be joined always those of the lowest rank, the leftmost first.

use std::collections::HashMap;

use serde::Deserialize;
use tokenizers::Model as _;
use tokenizers::models::bpe::BPE;

use super::super::alphabet;

/// Longer words are left to others: looking through all neighbours for every merge takes time with the square of their number.
const MAX_WORD_BYTES: usize = 96;

const BYTES: usize = 256;

/// The rank of neighbours that nothing joins.
const NEVER: u32 = u32::MAX;

/// What joins what.
#[derive(Debug)]
pub(super) struct Merges {
    /// The character that stands for each byte, and its token.
    bytes: [Option<(char, u32)>; BYTES],
    /// By the tokens that are joined.
    pairs: HashMap<(u32, u32), Merge, foldhash::fast::RandomState>,
    /// Whether a word that is a token needs no merging.
    are_words_first: bool,
}

/// How two tokens are joined.
#[derive(Debug, Clone, Copy)]
struct Merge {
    /// The lower, the sooner.
    rank: u32,
    /// What they become.
    token: u32,
}

impl Merge {
    /// Of tokens that nothing joins.
    const NONE: Self = Self {
        rank: NEVER,
        token: 0,
    };
}

/// A token on its way, and how it is joined with the next.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    token: u32,
    with_next: Merge,
}

/// Where words are merged; kept to be used again.
#[derive(Debug, Default)]
pub(super) struct Bench {
    symbols: Vec<Symbol>,
    spelled: String,
}

/// The parts of a model's JSON that are read.
#[derive(Deserialize)]
struct Written {
    vocab: HashMap<String, u32>,
    merges: Vec<(String, String)>,
}

impl Merges {
    /// Those of a model whose tokens are spelled in the alphabet of bytes; `None` if they cannot be had.
    pub(super) fn of(model: &BPE) -> Option<Self> {
        // The crate shows its merges to nobody who does not ask for JSON.
        let json = serde_json::to_vec(model).ok()?;
        let Written { vocab, merges } = serde_json::from_slice(&json).ok()?;
        // Fewer: two tokens share an id, and which of them merges speak of cannot be told.
        if vocab.len() != model.get_vocab_size() {
            return None;
        }
        let mut pairs = HashMap::with_capacity_and_hasher(merges.len(), Default::default());
        for ((left, right), rank) in merges.into_iter().zip(0..) {
            let (first, second) = (*vocab.get(&left)?, *vocab.get(&right)?);
            let token = *vocab.get(&(left + &right))?;
            pairs.insert((first, second), Merge { rank, token });
        }
        let mut bytes = [None; BYTES];
        for (byte, slot) in (0..=u8::MAX).zip(&mut bytes) {
            let character = alphabet::character_of(byte);
            let token = vocab.get(character.encode_utf8(&mut [0; 4]) as &str);
            *slot = token.map(|token| (character, *token));
        }
        Some(Self {
            bytes,
            pairs,
            are_words_first: model.ignore_merges,
        })
    }

    /// Appends the tokens of a word; false, with nothing appended, if they have to be had elsewhere.
    pub(super) fn encode(
        &self,
        model: &BPE,
        word: &[u8],
        bench: &mut Bench,
        tokens: &mut Vec<u32>,
    ) -> bool {
        if word.len() > MAX_WORD_BYTES {
            return false;
        }
        let Bench { symbols, spelled } = bench;
        symbols.clear();
        spelled.clear();
        for byte in word {
            let Some(Some((character, token))) = self.bytes.get(usize::from(*byte)) else {
                return false;
            };
            spelled.push(*character);
            symbols.push(Symbol {
                token: *token,
                with_next: Merge::NONE,
            });
        }
        if self.are_words_first
            && let Some(token) = model.token_to_id(spelled)
        {
            tokens.push(token);
            return true;
        }
        self.merge(symbols);
        tokens.extend(symbols.iter().map(|symbol| symbol.token));
        true
    }

    fn merge(&self, symbols: &mut Vec<Symbol>) {
        for at in 0..symbols.len() {
            self.look_ahead(symbols, at);
        }
        let first_of_least = |symbols: &[Symbol]| {
            let ranked = symbols.iter().enumerate();
            let (at, least) = ranked.min_by_key(|(_, symbol)| symbol.with_next.rank)?;
            (least.with_next.rank != NEVER).then_some((at, least.with_next.token))
        };
        while let Some((at, token)) = first_of_least(symbols) {
            symbols.remove(at + 1);
            if let Some(symbol) = symbols.get_mut(at) {
                symbol.token = token;
            }
            self.look_ahead(symbols, at);
            if let Some(before) = at.checked_sub(1) {
                self.look_ahead(symbols, before);
            }
        }
    }

    /// Looks up how a symbol is joined with the next.
    fn look_ahead(&self, symbols: &mut [Symbol], at: usize) {
        let next = symbols.get(at + 1).map(|next| next.token);
        if let Some(symbol) = symbols.get_mut(at) {
            let merge = next.and_then(|next| self.pairs.get(&(symbol.token, next)));
            symbol.with_next = merge.copied().unwrap_or(Merge::NONE);
        }
    }
}
