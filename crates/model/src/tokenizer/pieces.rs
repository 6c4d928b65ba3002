//! The bytes of every token, one after another in a single block.

use super::alphabet;

/// How a vocabulary writes bytes as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// Each byte is one character of GPT-2's alphabet.
    ByteLevel,
    /// As SentencePiece does: `▁` is a space; `<0x0A>` is a byte if `byte_fallback`.
    SentencePiece { byte_fallback: bool },
}

impl Spelling {
    pub(super) fn bytes_of(self, token: &str) -> Vec<u8> {
        match self {
            Self::ByteLevel => {
                alphabet::bytes_of(token).unwrap_or_else(|| token.as_bytes().to_vec())
            }
            Self::SentencePiece { byte_fallback } => match byte_token(token) {
                Some(byte) if byte_fallback => vec![byte],
                _ => token.replace('▁', " ").into_bytes(),
            },
        }
    }
}

/// The byte that a token like `<0x0A>` stands for.
fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Absent,
    Text,
    Special,
}

#[derive(Debug)]
pub(super) struct Pieces {
    bytes: Vec<u8>,
    /// Where each token's bytes end; they begin where the one before ends.
    entries: Vec<(usize, Kind)>,
}

impl Pieces {
    /// From tokens with their bytes and whether they are special; ids may come in any order and leave
    /// gaps. All ids are below `MAX_VOCAB`.
    pub(super) fn new(tokens: impl IntoIterator<Item = (u32, Vec<u8>, bool)>) -> Self {
        let mut sorted: Vec<_> = tokens.into_iter().collect();
        sorted.sort_by_key(|(id, _, _)| *id);
        let mut pieces = Self {
            bytes: Vec::new(),
            entries: Vec::new(),
        };
        for (id, bytes, special) in sorted {
            debug_assert!((id as usize) < super::MAX_VOCAB);
            let absent = (pieces.bytes.len(), Kind::Absent);
            pieces.entries.resize(id as usize, absent);
            pieces.bytes.extend(bytes);
            let kind = if special { Kind::Special } else { Kind::Text };
            pieces.entries.push((pieces.bytes.len(), kind));
        }
        pieces.bytes.shrink_to_fit();
        pieces.entries.shrink_to_fit();
        pieces
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self, id: u32) -> Option<&[u8]> {
        let id = id as usize;
        let (end, kind) = *self.entries.get(id)?;
        let start = match id.checked_sub(1) {
            Some(before) => self.entries.get(before)?.0,
            None => 0,
        };
        if kind == Kind::Absent {
            return None;
        }
        self.bytes.get(start..end)
    }

    pub(super) fn is_special(&self, id: u32) -> bool {
        matches!(self.entries.get(id as usize), Some((_, Kind::Special)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_no_tokens() {
        let pieces = Pieces::new([(3, b"c".to_vec(), true), (1, b"ab".to_vec(), false)]);
        assert_eq!(pieces.len(), 4);
        assert_eq!(pieces.bytes(0), None);
        assert_eq!(pieces.bytes(1), Some(b"ab".as_slice()));
        assert_eq!(pieces.bytes(2), None);
        assert_eq!(pieces.bytes(3), Some(b"c".as_slice()));
        assert_eq!(pieces.bytes(4), None);
        assert!(pieces.is_special(3) && !pieces.is_special(1));
    }

    #[test]
    fn sentencepiece_spells_spaces_and_bytes() {
        let spelling = Spelling::SentencePiece {
            byte_fallback: true,
        };
        assert_eq!(spelling.bytes_of("▁the▁"), b" the ");
        assert_eq!(spelling.bytes_of("<0x0A>"), b"\n");
        assert_eq!(spelling.bytes_of("<0xZZ>"), b"<0xZZ>");
        let without = Spelling::SentencePiece {
            byte_fallback: false,
        };
        assert_eq!(without.bytes_of("<0x0A>"), b"<0x0A>");
    }
}
