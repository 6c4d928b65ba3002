//! Hash tables keyed by numbers that are hashes already.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are 64-bit hashes or small ids: one multiplication spreads them, SipHash would be most of
/// the cost of a lookup.
pub(crate) type HashedMap<K, V> = HashMap<K, V, BuildHasherDefault<Spread>>;

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Folds the 128-bit product, so that every input bit reaches both the bucket and the tag bits of the table.
#[derive(Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0 ^ word);
    }
}

/// A number that looks unrelated to its argument; equal arguments give equal numbers.
pub(crate) fn mix(word: u64) -> u64 {
    let product = u128::from(word ^ ODD.rotate_left(32)) * u128::from(ODD);
    (product as u64) ^ ((product >> 64) as u64)
}
