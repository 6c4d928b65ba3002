//! Bytes into characters, as they come.

/// Turns a stream of bytes into text without ever cutting a character. Bytes that can no longer become
/// one are shown as U+FFFD.
#[derive(Debug, Default)]
pub(crate) struct Utf8Stream {
    /// The beginning of a character, at most three bytes.
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// Adds bytes and appends the characters they complete to `text`.
    pub(crate) fn push(&mut self, bytes: &[u8], text: &mut String) {
        self.pending.extend_from_slice(bytes);
        let mut rest = self.pending.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, broken) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    rest = broken;
                    match error.error_len() {
                        Some(len) => {
                            text.push(char::REPLACEMENT_CHARACTER);
                            rest = &rest[len..];
                        }
                        None => break,
                    }
                }
            }
        }
        let kept = self.pending.len() - rest.len();
        self.pending.drain(..kept);
    }

    /// The end: what is still incomplete never will be complete.
    pub(crate) fn finish(&mut self, text: &mut String) {
        if !self.pending.is_empty() {
            text.push_str(&String::from_utf8_lossy(&self.pending));
            self.pending.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_character_appears_only_when_it_is_whole() {
        let mut stream = Utf8Stream::default();
        let mut text = String::new();
        for (i, byte) in "😀".bytes().enumerate() {
            stream.push(&[byte], &mut text);
            assert_eq!(text.is_empty(), i < 3);
        }
        assert_eq!(text, "😀");
    }

    proptest! {
        #[test]
        fn any_cut_of_any_bytes_reads_like_the_whole(
            pieces in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..4),
                    "[a-zäß€😀]{0,3}".prop_map(String::into_bytes),
                ],
                0..12,
            ),
            cut in 1usize..5,
        ) {
            let bytes: Vec<u8> = pieces.concat();
            let mut stream = Utf8Stream::default();
            let mut text = String::new();
            for piece in bytes.chunks(cut) {
                stream.push(piece, &mut text);
            }
            stream.finish(&mut text);
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }
    }
}
