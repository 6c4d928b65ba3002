//! Doors for the fuzz targets. The same inputs, mutated, are tried by a test on every run.

use crate::entry;
use crate::fingerprint::{Fingerprint, Route, Subject, recognise};
use crate::secret::{Keys, Secret};

const SECRET: &str = "a secret for fuzzing";

fn keys() -> Keys {
    Secret::from_text(SECRET).keys()
}

/// The fingerprint of a tenant's request, if it has one.
pub fn fingerprint(tenant: &str, route: Route, body: &[u8]) -> Option<Fingerprint> {
    let subject = Subject {
        tenant,
        route,
        model: "m",
        revision: "1",
        context: None,
        normalise_unicode: true,
    };
    let question = recognise(&keys(), &subject, body).ok()?;
    Some(question.fingerprint)
}

/// Whether something out of a store is opened.
pub fn opens(sealed: &[u8]) -> bool {
    entry::open(&keys(), Fingerprint([7; 32]), "t", sealed).is_ok()
}

/// The same for something that bears our seal, as nobody can make it but we.
pub fn opens_when_sealed(content: &[u8]) -> bool {
    let seal = blake3::keyed_hash(&keys().seal, content);
    opens(&[content, seal.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    const REQUESTS: [&str; 4] = [
        r#"{"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","content":[{"type":"text","text":"h\u00e9"}]}],
            "temperature":0,"seed":-7,"stop":["a","\n"],"stream":true,"stream_options":{"include_usage":true},"n":2}"#,
        r#"{"prompt":[[1,2,3],[4]],"max_tokens":null,"logit_bias":{"5":-1.5e1},"echo":false,"metadata":{"context_hash":"x"}}"#,
        r#"{"messages":[],"tools":[{"type":"function","function":{"name":"f","parameters":{"b":1,"a":[null,true]}}}],"tool_choice":"auto"}"#,
        r#"{"messages":[{"role":"user","content":""}],"response_format":{"type":"json_schema","json_schema":{"schema":{}}},"top_p":1e-3}"#,
    ];

    /// What mutations put in: the bytes that mean something to a reader of JSON, and some that mean nothing.
    const BYTES: &[u8] = b"\"\\{}[]:,0-eE.+ntf/u\n \x00\xff\xc3";

    fn next(state: &mut u64) -> usize {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 11) as usize
    }

    /// One to four bytes changed, put in, taken out, or a part repeated.
    fn mutate(seed: &[u8], state: &mut u64) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..=next(state) % 4 {
            let at = next(state) % bytes.len().max(1);
            let byte = BYTES[next(state) % BYTES.len()];
            match next(state) % 4 {
                0 if at < bytes.len() => bytes[at] = byte,
                1 if at < bytes.len() => {
                    bytes.remove(at);
                }
                2 => {
                    let end = (at + next(state) % 24).min(bytes.len());
                    let part = bytes.get(at..end).unwrap_or_default().to_vec();
                    bytes.splice(at..at, part);
                }
                _ => bytes.insert(at.min(bytes.len()), byte),
            }
        }
        bytes
    }

    #[test]
    fn mutated_requests_are_recognised_rightly_or_not_at_all() {
        let mut state = 0x5eed;
        let mut recognised = 0;
        for round in 0..20_000 {
            let body = mutate(REQUESTS[round % REQUESTS.len()].as_bytes(), &mut state);
            for route in [Route::Chat, Route::Completions] {
                let Some(print) = fingerprint("a", route, &body) else {
                    continue;
                };
                recognised += 1;
                assert_ne!(Some(print), fingerprint("b", route, &body));
                // Only read, to see that it is JSON: this reader forgets the order of keys.
                serde_json::from_slice::<Value>(&body).unwrap();
                let spaced = [b" \n", &body[..], b"\t"].concat();
                assert_eq!(Some(print), fingerprint("a", route, &spaced));
            }
        }
        assert!(recognised > 1000, "{recognised}");
    }

    #[test]
    fn mutated_entries_open_whole_or_not_at_all() {
        let entry = entry::tests::entry();
        let sealed = entry::seal(&keys(), Fingerprint([7; 32]), "t", &entry);
        assert!(opens(&sealed));
        let (content, _) = sealed.split_at(sealed.len() - 32);
        assert!(opens_when_sealed(content));
        let mut state = 0x5eed;
        for _ in 0..20_000 {
            let bent = mutate(&sealed, &mut state);
            assert!(bent[..] == sealed[..] || !opens(&bent));
            // Whatever comes of it, it comes without a panic.
            opens_when_sealed(&mutate(content, &mut state));
        }
    }
}
