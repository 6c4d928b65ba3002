//! Tokenizers give Hugging Face's ids, from `tokenizer.json` and from GGUF metadata alike, and decode
//! by bytes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails loudly, and shows what it measured"
)]

use std::path::{Path, PathBuf};

use forespeak_model::gguf::Gguf;
use forespeak_model::{Specials, Tokenizer};
use proptest::prelude::*;

const NAMES: [&str; 2] = ["byte-level", "sentencepiece"];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/goldens")
        .join(name)
}

/// The same vocabulary, read from both kinds of file.
fn both(name: &str) -> [Tokenizer; 2] {
    let read = |file: &str| std::fs::read(folder(name).join(file)).unwrap();
    let json = Tokenizer::from_json("tokenizer.json", &read("tokenizer.json")).unwrap();
    let bytes = read("vocab.gguf");
    let gguf = Tokenizer::from_gguf(&Gguf::parse("vocab.gguf", &bytes).unwrap()).unwrap();
    [json, gguf]
}

#[test]
fn ids_and_texts_are_those_of_hugging_face() {
    for name in NAMES {
        let cases = std::fs::read(folder(name).join("ids.json")).unwrap();
        let cases: Vec<serde_json::Value> = serde_json::from_slice(&cases).unwrap();
        assert!(cases.len() >= 40);
        for (kind, tokenizer) in ["json", "gguf"].iter().zip(both(name)) {
            for case in &cases {
                let text = case["text"].as_str().unwrap();
                let expected: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
                let ids = tokenizer.encode(text, Specials::PARSE_AND_ADD).unwrap();
                assert_eq!(ids, expected, "{name} {kind} {text:?}");
                let decoded = case["decoded"].as_str().unwrap();
                assert_eq!(
                    tokenizer.decode(&ids, true),
                    decoded,
                    "{name} {kind} {text:?}"
                );
            }
        }
    }
}

#[test]
fn special_tokens_can_be_read_as_text() {
    let [tokenizer, _] = both("byte-level");
    let text = "a<|im_end|>b";
    let parsed = tokenizer.encode(text, Specials::PARSE).unwrap();
    let literal = tokenizer.encode(text, Specials::NONE).unwrap();
    assert_eq!(parsed.len(), 3);
    assert!(tokenizer.is_special(parsed[1]));
    assert!(literal.iter().all(|&id| !tokenizer.is_special(id)));
    assert_eq!(tokenizer.decode(&literal, true), text);
    assert_eq!(tokenizer.decode(&parsed, true), "ab");
    assert_eq!(tokenizer.decode(&parsed, false), text);
}

#[test]
fn a_megabyte_without_a_space_is_no_attack() {
    for name in NAMES {
        for tokenizer in both(name) {
            for piece in ["a", "the", "ab1", "東", "!"] {
                let text = piece.repeat((1 << 20) / piece.len());
                let start = std::time::Instant::now();
                let ids = tokenizer.encode(&text, Specials::PARSE).unwrap();
                let took = start.elapsed();
                println!("{name} {piece:?}: {} ids in {took:?}", ids.len());
                assert_eq!(tokenizer.decode(&ids, true), text);
                assert!(took.as_secs() < 60, "{name} {piece:?}: {took:?}");
            }
        }
    }
}

proptest! {
    #[test]
    fn text_survives_and_bytes_add_up(text in any::<String>()) {
        for name in NAMES {
            let [json, gguf] = both(name);
            let ids = json.encode(&text, Specials::NONE).unwrap();
            prop_assert_eq!(&ids, &gguf.encode(&text, Specials::NONE).unwrap());
            for tokenizer in [json, gguf] {
                let bytes: Vec<u8> = ids
                    .iter()
                    .flat_map(|&id| tokenizer.token_bytes(id).unwrap())
                    .copied()
                    .collect();
                let whole = tokenizer.decode(&ids, false);
                let kept = match bytes.strip_prefix(b" ") {
                    Some(rest) if tokenizer.strips_leading_space() => rest,
                    _ => &bytes,
                };
                prop_assert_eq!(whole.as_bytes(), kept);
                prop_assert_eq!(&whole, &text);
            }
        }
    }

    #[test]
    fn any_ids_decode_to_their_bytes(ids in prop::collection::vec(0u32..600, 0..50)) {
        for name in NAMES {
            for tokenizer in both(name) {
                let bytes: Vec<u8> = ids
                    .iter()
                    .flat_map(|&id| tokenizer.token_bytes(id).unwrap_or_default())
                    .copied()
                    .collect();
                let kept = match bytes.strip_prefix(b" ") {
                    Some(rest) if tokenizer.strips_leading_space() => rest,
                    _ => &bytes,
                };
                prop_assert_eq!(tokenizer.decode(&ids, false), String::from_utf8_lossy(kept));
            }
        }
    }
}
