//! Whatever a `tokenizer.json` says, reading it ends in a tokenizer or an error, and so does using what was read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use model::{Specials, Tokenizer};

/// Short, so that a pattern that tries every way to match it is done soon.
const TEXT: &str = "<s>ab é▁b";

fuzz_target!(|bytes: &[u8]| {
    let Ok(tokenizer) = Tokenizer::from_json("fuzz.json", bytes) else {
        return;
    };
    tokenizer.seams(TEXT).for_each(drop);
    for specials in [Specials::PARSE, Specials::PARSE_AND_ADD, Specials::NONE] {
        if let Ok(ids) = tokenizer.encode(TEXT, specials) {
            tokenizer.decode(&ids, true);
        }
    }
});
