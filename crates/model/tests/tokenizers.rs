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
use forespeak_model::{ModelError, Specials, Tokenizer};
use proptest::prelude::*;
use testkit::tiny_models::{GgufWriter, MetadataValue};

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

/// The byte-level vocabulary as a GGUF file that names another rule for cutting text into words.
fn with_split_rule(rule: &str) -> Result<Tokenizer, ModelError> {
    use MetadataValue::{I32s, String, Strings};
    let json = std::fs::read(folder("byte-level").join("tokenizer.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let vocab = json["model"]["vocab"].as_object().unwrap();
    let mut tokens: Vec<_> = vocab
        .iter()
        .map(|(token, id)| (id.as_u64(), token.clone()))
        .collect();
    tokens.sort();
    let tokens: Vec<_> = tokens.into_iter().map(|(_, token)| token).collect();
    let types = tokens
        .iter()
        .map(|token| if token.starts_with("<|") { 3 } else { 1 });
    let merges = json["model"]["merges"].as_array().unwrap().iter();
    let merges = merges.map(|merge| {
        format!(
            "{} {}",
            merge[0].as_str().unwrap(),
            merge[1].as_str().unwrap()
        )
    });
    let mut writer = GgufWriter::default();
    writer.set("tokenizer.ggml.model", String("gpt2".into()));
    writer.set("tokenizer.ggml.pre", String(rule.into()));
    writer.set("tokenizer.ggml.token_type", I32s(types.collect()));
    writer.set("tokenizer.ggml.merges", Strings(merges.collect()));
    writer.set("tokenizer.ggml.tokens", Strings(tokens));
    let bytes = writer.finish();
    Tokenizer::from_gguf(&Gguf::parse("vocab.gguf", &bytes).unwrap())
}

#[test]
fn other_models_cut_words_by_their_own_rules() {
    let read = |file: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(folder("byte-level").join(file)).unwrap()).unwrap()
    };
    let (texts, rules) = (read("ids.json"), read("split-rules.json"));
    for (rule, expected) in rules.as_object().unwrap() {
        let tokenizer = with_split_rule(rule).unwrap();
        for (case, expected) in texts
            .as_array()
            .unwrap()
            .iter()
            .zip(expected.as_array().unwrap())
        {
            let text = case["text"].as_str().unwrap();
            let expected: Vec<u32> = serde_json::from_value(expected.clone()).unwrap();
            let ids = tokenizer.encode(text, Specials::PARSE).unwrap();
            assert_eq!(ids, expected, "{rule} {text:?}");
        }
    }
    let error = with_split_rule("unheard-of").unwrap_err().to_string();
    assert!(
        error.contains("pre-tokenizer `unheard-of` is not supported"),
        "{error}"
    );
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

/// Generous for a debug build on a busy machine, and far from what anything quadratic would take.
const MEGABYTE_SECONDS: u64 = 60;

fn encode_a_megabyte_of(piece: &str, name: &str, tokenizer: &Tokenizer) {
    let text = piece.repeat((1 << 20) / piece.len());
    let start = std::time::Instant::now();
    let ids = tokenizer.encode(&text, Specials::PARSE).unwrap();
    let took = start.elapsed();
    println!("{name} {piece:?}: {} ids in {took:?}", ids.len());
    assert_eq!(tokenizer.decode(&ids, true), text);
    assert!(
        took.as_secs() < MEGABYTE_SECONDS,
        "{name} {piece:?}: {took:?}"
    );
}

#[test]
fn a_megabyte_without_a_space_is_no_attack() {
    for name in NAMES {
        let [tokenizer, _] = both(name);
        for piece in ["a", "the", "ab1", "東", "!"] {
            encode_a_megabyte_of(piece, name, &tokenizer);
        }
    }
}

#[test]
fn a_megabyte_of_spaces_is_no_attack() {
    for rule in ["gpt-2", "llama-bpe", "qwen2"] {
        let tokenizer = with_split_rule(rule).unwrap();
        for piece in [" ", "\r\n ", " \u{3000}"] {
            encode_a_megabyte_of(piece, rule, &tokenizer);
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
