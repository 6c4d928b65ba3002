//! Whatever a client sends, the survey takes it only if `serde_json` does and finds the same fields, and an
//! edited body is one that both take.
#![no_main]

use std::collections::BTreeMap;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use protocol::survey::{Edits, Survey};
use serde_json::value::RawValue;

fuzz_target!(|bytes: &[u8]| {
    let Ok(survey) = Survey::read(bytes) else {
        return;
    };
    let fields: BTreeMap<String, &RawValue> = serde_json::from_slice(bytes).expect("we took it");
    for (name, raw) in &fields {
        let found = survey.value(name).map(|span| &bytes[span]);
        assert!(raw.get() == "null" || found == Some(raw.get().as_bytes()), "{name}");
    }
    let body = Bytes::copy_from_slice(bytes);
    let mut edits = Edits::new(&survey, &body);
    edits.set("cache_salt", "tenant");
    edits.ask_for_usage();
    edits.remove("priority");
    let edited = edits.finish().concat();
    let again = Survey::read(&edited).expect("what we made is JSON");
    assert!(again.include_usage && again.priority.is_none());
    let salt = again.value("cache_salt").map(|span| &edited[span]);
    assert_eq!(salt, Some(b"\"tenant\"".as_slice()));
});
