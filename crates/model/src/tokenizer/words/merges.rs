//! Joins the bytes of a word into tokens: of all neighbours that may be joined always those of the lowest rank, the leftmost first.

use std::collections::HashMap;

use serde::Deserialize;
use tokenizers::Model as _;
use tokenizers::models::bpe::BPE;

use super::super::alphabet;

/// Longer words are left to others: looking through all neighbours for every merge takes time with the square of their number.
const MAX_WORD_BYTES: usize = 96;

const ASCII: usize = 128;

/// Of neighbours that nothing joins.
const NEVER: u32 = u32::MAX;

/// What joins what.
#[derive(Debug)]
pub(super) struct Merges {
    /// The character that stands for each byte, and its token.
    bytes: [Option<(char, u32)>; ASCII],
    /// The rank of each pair of tokens that are joined.
    ranks: HashMap<u64, u32, foldhash::fast::RandomState>,
    /// What they become, by rank.
    joined: Vec<u32>,
    /// Whether a word that is a token needs no merging.
    are_words_first: bool,
}

/// A token on its way, and the rank at which it is joined with the next.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    token: u32,
    rank: u32,
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
        let mut ranks = HashMap::with_capacity_and_hasher(merges.len(), Default::default());
        let mut joined = Vec::with_capacity(merges.len());
        for ((left, right), rank) in merges.into_iter().zip(0..) {
            let pair = pair(*vocab.get(&left)?, *vocab.get(&right)?);
            ranks.insert(pair, rank);
            joined.push(*vocab.get(&(left + &right))?);
        }
        let mut bytes = [None; ASCII];
        for (byte, slot) in (0..).zip(&mut bytes) {
            let character = alphabet::character_of(byte);
            let token = vocab.get(character.encode_utf8(&mut [0; 4]) as &str);
            *slot = token.map(|token| (character, *token));
        }
        Some(Self {
            bytes,
            ranks,
            joined,
            are_words_first: model.ignore_merges,
        })
    }

    /// Appends the tokens of an ASCII word; false, with nothing appended, if they have to be had elsewhere.
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
                rank: NEVER,
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
            self.rank(symbols, at);
        }
        let first_of_least = |symbols: &[Symbol]| {
            let ranked = symbols.iter().enumerate();
            let (at, least) = ranked.min_by_key(|(_, symbol)| symbol.rank)?;
            (least.rank != NEVER).then_some((at, least.rank))
        };
        while let Some((at, rank)) = first_of_least(symbols) {
            symbols.remove(at + 1);
            if let (Some(symbol), Some(token)) =
                (symbols.get_mut(at), self.joined.get(rank as usize))
            {
                symbol.token = *token;
            }
            self.rank(symbols, at);
            if let Some(before) = at.checked_sub(1) {
                self.rank(symbols, before);
            }
        }
    }

    /// Looks up how soon a symbol is joined with the next.
    fn rank(&self, symbols: &mut [Symbol], at: usize) {
        let next = symbols.get(at + 1).map(|next| next.token);
        if let Some(symbol) = symbols.get_mut(at) {
            let rank = next.and_then(|next| self.ranks.get(&pair(symbol.token, next)));
            symbol.rank = rank.copied().unwrap_or(NEVER);
        }
    }
}

fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}
