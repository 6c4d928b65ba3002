//! Whatever a worker publishes, reading it ends in events or an error, and what was read can be written
//! and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::kv_events::{decode_batch, encode_batch};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(batch) = decode_batch(bytes) {
        assert!(decode_batch(&encode_batch(&batch)).is_ok());
    }
});
