//! However a stream is cut into pieces, the same events come out of it, or the same error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::sse::Decoder;

fuzz_target!(|input: (usize, &[u8])| {
    let (cut, bytes) = input;
    let decode = |pieces: &[&[u8]]| {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        let outcome = pieces
            .iter()
            .try_for_each(|piece| decoder.push(piece, &mut events));
        (outcome, events)
    };
    let (head, tail) = bytes.split_at(cut.min(bytes.len()));
    assert_eq!(decode(&[head, tail]), decode(&[bytes]));
});
