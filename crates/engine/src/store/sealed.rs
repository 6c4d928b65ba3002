//! A block on its way out of the engine and back.
//!
//! ```text
//! "fskv", version, 3 zeros | key (32) | length (u32) | keys and values | keyed BLAKE3 over all before it (32)
//! ```
//! The seal's key is the model's [`Identity`]: a block of another model, another version or another owner's
//! secret is foreign even under the right name, and one flipped bit anywhere is found.

use bytes::Bytes;

use super::key::{Identity, StoreKey};

const MAGIC: [u8; 8] = *b"fskv\x01\0\0\0";
const KEY_AT: usize = MAGIC.len();
const LENGTH_AT: usize = KEY_AT + StoreKey::BYTES;
const PAYLOAD_AT: usize = LENGTH_AT + size_of::<u32>();
const TAG_BYTES: usize = blake3::OUT_LEN;

/// Why a sealed block is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// Too short to be one, or shorter than it says.
    #[error("a block is cut short")]
    Truncated,
    /// Not one of ours, or not the one that was asked for.
    #[error("a block is somebody else's")]
    Foreign,
    /// Keys and values of another shape.
    #[error("a block has another shape")]
    Shape,
    /// Its contents are not what was sealed.
    #[error("a block is damaged")]
    Damaged,
}

impl Flaw {
    /// All of them, as metrics tell them.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Truncated, "truncated"),
        (Self::Foreign, "foreign"),
        (Self::Shape, "shape"),
        (Self::Damaged, "damaged"),
    ];
}

/// A block that is being sealed. Keys and values are written into it once and not copied again.
#[derive(Debug)]
pub struct Sealed {
    bytes: Vec<u8>,
}

impl Sealed {
    /// One without contents, with room for them.
    pub fn begin(key: &StoreKey, payload_bytes: usize) -> Self {
        let mut bytes = Vec::with_capacity(PAYLOAD_AT + payload_bytes + TAG_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(key.as_bytes());
        bytes.extend_from_slice(&0_u32.to_le_bytes());
        Self { bytes }
    }

    /// Where its contents are appended.
    pub fn payload(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Seals it.
    pub fn finish(mut self, identity: &Identity) -> Bytes {
        let length = (self.bytes.len() - PAYLOAD_AT) as u32;
        self.bytes[LENGTH_AT..PAYLOAD_AT].copy_from_slice(&length.to_le_bytes());
        let tag = blake3::keyed_hash(identity.seal_key(), &self.bytes);
        self.bytes.extend_from_slice(tag.as_bytes());
        self.bytes.into()
    }

    /// The contents of the block that was asked for, if that is what these bytes are.
    pub fn open(
        identity: &Identity,
        key: &StoreKey,
        payload_bytes: usize,
        sealed: &Bytes,
    ) -> Result<Bytes, Flaw> {
        let header = sealed.get(..PAYLOAD_AT).ok_or(Flaw::Truncated)?;
        if header[..KEY_AT] != MAGIC || header[KEY_AT..LENGTH_AT] != key.as_bytes()[..] {
            return Err(Flaw::Foreign);
        }
        let mut length = [0; size_of::<u32>()];
        length.copy_from_slice(&header[LENGTH_AT..]);
        let length = u32::from_le_bytes(length) as usize;
        if length != payload_bytes {
            return Err(Flaw::Shape);
        }
        let end = PAYLOAD_AT + length;
        if sealed.len() != end + TAG_BYTES {
            return Err(Flaw::Truncated);
        }
        let tag = blake3::keyed_hash(identity.seal_key(), &sealed[..end]);
        // Equality of hashes is compared in constant time: a forger learns nothing from how long it takes.
        let mut claimed = [0; TAG_BYTES];
        claimed.copy_from_slice(&sealed[end..]);
        if tag != blake3::Hash::from_bytes(claimed) {
            return Err(Flaw::Damaged);
        }
        Ok(sealed.slice(PAYLOAD_AT..end))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(n: u8) -> StoreKey {
        StoreKey::from_bytes([n; StoreKey::BYTES])
    }

    fn sealed(identity: &Identity, payload: &[u8]) -> Bytes {
        let mut sealed = Sealed::begin(&key(1), payload.len());
        sealed.payload().extend_from_slice(payload);
        sealed.finish(identity)
    }

    proptest! {
        #[test]
        fn what_was_sealed_opens_and_any_flipped_bit_is_found(
            payload in prop::collection::vec(any::<u8>(), 0..300),
            at in any::<prop::sample::Index>(),
            bit in 0..8u32,
        ) {
            let identity = Identity::new("", &["m"]);
            let whole = sealed(&identity, &payload);
            let opened = Sealed::open(&identity, &key(1), payload.len(), &whole);
            prop_assert_eq!(opened.as_deref(), Ok(&payload[..]));
            let mut flipped = whole.to_vec();
            let at = at.index(flipped.len());
            flipped[at] ^= 1_u8 << bit;
            prop_assert!(Sealed::open(&identity, &key(1), payload.len(), &flipped.into()).is_err());
            let cut = whole.slice(..at);
            prop_assert!(Sealed::open(&identity, &key(1), payload.len(), &cut).is_err());
        }
    }

    #[test]
    fn a_block_of_another_name_model_or_shape_is_told_apart() {
        let identity = Identity::new("", &["m"]);
        let whole = sealed(&identity, &[7; 10]);
        let open = |identity: &Identity, n, bytes| {
            Sealed::open(identity, &key(n), bytes, &whole).map(|_| ())
        };
        assert_eq!(open(&identity, 1, 10), Ok(()));
        assert_eq!(open(&identity, 2, 10), Err(Flaw::Foreign));
        assert_eq!(open(&identity, 1, 11), Err(Flaw::Shape));
        let other = Identity::new("", &["another"]);
        assert_eq!(open(&other, 1, 10), Err(Flaw::Damaged));
        let short = Sealed::open(&identity, &key(1), 10, &whole.slice(..20));
        assert_eq!(short, Err(Flaw::Truncated));
    }
}
