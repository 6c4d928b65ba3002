//! GPT-2's alphabet: byte-level vocabularies write each byte as one printable character.

/// The byte that a character of a byte-level token stands for.
pub(super) fn byte_of(character: char) -> Option<u8> {
    let code = u32::from(character);
    if let Ok(byte) = u8::try_from(code) {
        return stands_for_itself(byte).then_some(byte);
    }
    let rank = usize::try_from(code.checked_sub(0x100)?).ok()?;
    (0..=u8::MAX)
        .filter(|byte| !stands_for_itself(*byte))
        .nth(rank)
}

/// The character that stands for a byte in byte-level tokens.
pub(super) fn character_of(byte: u8) -> char {
    if stands_for_itself(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|byte| !stands_for_itself(*byte)).count();
    u32::try_from(0x100 + before)
        .ok()
        .and_then(char::from_u32)
        .unwrap_or_default()
}

/// The bytes of a byte-level token; `None` if a character is not of the alphabet.
pub(super) fn bytes_of(token: &str) -> Option<Vec<u8>> {
    token.chars().map(byte_of).collect()
}

/// Printable Latin-1 characters stand for themselves, the others moved to U+0100 and up.
fn stands_for_itself(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_character() {
        let mut bytes: Vec<u8> = (0..0x200)
            .filter_map(char::from_u32)
            .filter_map(byte_of)
            .collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=u8::MAX).collect::<Vec<_>>());
        assert_eq!(bytes_of("Ġthe").unwrap(), b" the");
        assert_eq!(bytes_of("▁the"), None);
        for byte in 0..=u8::MAX {
            assert_eq!(byte_of(character_of(byte)), Some(byte));
        }
    }
}
