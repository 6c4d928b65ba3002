//! Whatever a safetensors file says, reading it ends in places inside the file or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(tensors) = model::safetensors::parse("fuzz.safetensors", bytes) {
        for (_, place) in tensors {
            assert!(bytes.get(place.range).is_some());
        }
    }
});
