//! Whatever a client sends, recognising it ends; what is recognised is JSON, how it is laid out does not matter, and
//! no two tenants meet.
#![no_main]

use cache::fuzzing::fingerprint;
use cache::Route;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    for route in [Route::Chat, Route::Completions] {
        let Some(print) = fingerprint("a", route, bytes) else {
            continue;
        };
        assert_ne!(Some(print), fingerprint("b", route, bytes));
        let value: Value = serde_json::from_slice(bytes).expect("it was recognised");
        let laid_out = serde_json::to_vec_pretty(&value).expect("it was read");
        assert_eq!(Some(print), fingerprint("a", route, &laid_out));
    }
});
