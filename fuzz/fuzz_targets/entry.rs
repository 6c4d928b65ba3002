//! Whatever lies in a store, opening it ends: bytes of others never open, and what bears our own seal opens or not, without
//! taking more memory than an entry may.
#![no_main]

use cache::fuzzing::{opens, opens_when_sealed};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    assert!(!opens(bytes));
    opens_when_sealed(bytes);
});
