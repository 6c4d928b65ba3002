//! Whatever lies in a store, opening it ends in a flaw unless it is exactly what was sealed under that name.
#![no_main]

use bytes::Bytes;
use engine::store::{Identity, Sealed, StoreKey};
use libfuzzer_sys::fuzz_target;

const PAYLOAD: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    let identity = Identity::new("", &["fuzz"]);
    let key = StoreKey::from_bytes([7; StoreKey::BYTES]);
    // Foreign bytes as they are: without the seal's key nobody makes a block.
    assert!(Sealed::open(&identity, &key, PAYLOAD, &Bytes::copy_from_slice(bytes)).is_err());
    // And as a change of a good block: the first byte says how much of it stays.
    let mut sealed = Sealed::begin(&key, PAYLOAD);
    sealed.payload().extend_from_slice(&[1; PAYLOAD]);
    let good = sealed.finish(&identity);
    let Some((&keep, tail)) = bytes.split_first() else {
        return;
    };
    let keep = usize::from(keep).min(good.len());
    let changed: Bytes = [&good[..keep], tail].concat().into();
    let opened = Sealed::open(&identity, &key, PAYLOAD, &changed);
    assert_eq!(opened.is_ok(), changed == good);
});
