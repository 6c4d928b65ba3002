//! An API key as it is kept.
//!
//! Keys are random and long, so one round of a plain hash is enough: there is no dictionary to try. SHA-256,
//! because every machine can make one (`printf %s "$KEY" | sha256sum`).

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// What a hash in a configuration begins with.
const PREFIX: &str = "sha256:";

const BYTES: usize = 32;

/// The SHA-256 of an API key.
#[derive(Clone, Copy)]
pub struct KeyHash([u8; BYTES]);

impl KeyHash {
    /// Of a key.
    pub fn of(key: &str) -> Self {
        Self(Sha256::digest(key.as_bytes()).into())
    }

    /// From `sha256:` and 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?.as_bytes();
        let (pairs, rest) = digits.as_chunks::<2>();
        if pairs.len() != BYTES || !rest.is_empty() {
            return None;
        }
        let mut hash = [0; BYTES];
        for (byte, [high, low]) in hash.iter_mut().zip(pairs) {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            *byte = u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()?;
        }
        Some(Self(hash))
    }

    /// Where to look for it. The time a look-up takes may tell of this part of a hash, never of a key.
    pub(super) fn shelf(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

impl PartialEq for KeyHash {
    /// Takes the same time whatever differs.
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for KeyHash {}

impl fmt::Display for KeyHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("KeyHash(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sha256sum_prints_is_understood() {
        // printf %s secret | sha256sum
        let text = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        let parsed = KeyHash::parse(text).unwrap();
        assert_eq!(parsed, KeyHash::of("secret"));
        assert_eq!(parsed.to_string(), text);
        assert_ne!(parsed, KeyHash::of("Secret"));
    }

    #[test]
    fn anything_else_is_not() {
        let short = "sha256:2bb8";
        let bare = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        let odd = format!("sha256:{}g", &bare[1..]);
        let long = format!("sha256:{bare}0");
        for text in ["", "secret", short, bare, &odd, &long] {
            assert!(KeyHash::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_hash_does_not_show_in_logs() {
        assert!(!format!("{:?}", KeyHash::of("secret")).contains("2b"));
    }
}
