//! Letters of European languages beyond ASCII: those of Unicode's Latin-1 Supplement and Latin Extended-A and B.
//!
//! Every rule takes them for letters, and composing characters leaves them as they are. All of them are two bytes long. Not counted
//! are the two signs among them (`×` and `÷`), and the long s, which is an `s` to rules that ignore case.

/// Whether two bytes are such a letter.
pub(super) fn is_letter(first: u8, second: u8) -> bool {
    match (first, second) {
        (0xc3, 0x97 | 0xb7) | (0xc5, 0xbf) => false,
        (0xc3..=0xc8, 0x80..=0xbf) | (0xc9, 0x80..=0x8f) => true,
        _ => false,
    }
}

/// Whether bytes begin with such a letter.
pub(super) fn begins(bytes: &[u8]) -> bool {
    matches!(bytes, [first, second, ..] if is_letter(*first, *second))
}

/// Whether bytes end with such a letter.
pub(super) fn ends(bytes: &[u8]) -> bool {
    matches!(bytes, [.., first, second] if is_letter(*first, *second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_letters_of_two_bytes() {
        let counted = |sign: &char| {
            let mut bytes = [0; 4];
            let bytes = sign.encode_utf8(&mut bytes).as_bytes();
            assert_eq!(begins(bytes), ends(bytes));
            begins(bytes)
        };
        let letters: Vec<char> = ('\0'..='\u{ffff}').filter(counted).collect();
        assert!(letters.iter().all(|letter| letter.is_alphabetic()));
        let expected = ('\u{c0}'..='\u{24f}').filter(|sign| !['×', '÷', 'ſ'].contains(sign));
        assert!(letters.into_iter().eq(expected));
    }
}
