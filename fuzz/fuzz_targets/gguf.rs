//! Whatever a GGUF file says, reading it ends in a value or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use model::Tokenizer;
use model::gguf::Gguf;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(gguf) = Gguf::parse("fuzz.gguf", bytes) {
        for (_, place) in gguf.tensors() {
            assert_eq!(gguf.data(place).len(), place.range.len());
        }
        let _ = Tokenizer::from_gguf(&gguf);
    }
});
