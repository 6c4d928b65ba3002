//! Whatever JSON a `tokenizer.json` is made of, reading it and using what was read end in values or errors.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use forespeak_model::{ModelError, Specials, Tokenizer};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

/// Short, so that a pattern that tries every way to match it is done soon.
const TEXT: &str = "<s>ab é▁b";

/// A little of everything that the file can have.
fn small() -> Value {
    let added = |id: u32, content: &str, normalized: bool| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": normalized, "special": !normalized})
    };
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 9, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": null,
                    "pad_id": 0, "pad_type_id": 0, "pad_token": "<s>"},
        "added_tokens": [added(0, "<s>", false), added(5, "é", true)],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFC"}, {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": " ?[a-z]+"}, "behavior": "Isolated", "invert": false},
            byte_level]},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": "<s>", "continuing_subword_prefix": null,
                  "end_of_word_suffix": "", "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
                  "vocab": {"<s>": 0, "a": 1, "b": 2, "Ġ": 3, "ab": 4}, "merges": [["a", "b"]]},
    })
}

/// Reads a file and does with it what a server does.
fn read_and_use(json: &str) -> Result<(), ModelError> {
    let tokenizer = Tokenizer::from_json("foreign.json", json.as_bytes())?;
    tokenizer.seams(TEXT).for_each(drop);
    for specials in [Specials::PARSE, Specials::PARSE_AND_ADD, Specials::NONE] {
        let ids = tokenizer.encode(TEXT, specials)?;
        tokenizer.decode(&ids, true);
    }
    Ok(())
}

/// Where all values of a document are, in the words of [`Value::pointer`].
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                places(item, &format!("{at}/{index}"), found);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                places(field, &format!("{at}/{name}"), found);
            }
        }
        _ => {}
    }
}

#[derive(Debug, Clone)]
enum Damage {
    Put(Index, Value),
    Copy(Index, Index),
    Remove(Index),
}

fn odd_values() -> Vec<Value> {
    let piece = |id| json!({"Sequence": {"id": id, "type_id": 0}});
    let template = |piece| json!({"type": "TemplateProcessing", "single": [piece], "pair": [], "special_tokens": {}});
    vec![
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(0.5),
        json!(1 << 20),
        json!(u64::MAX),
        json!(""),
        json!("a"),
        json!(" "),
        json!("▁"),
        json!("(a"),
        json!([]),
        json!({}),
        json!(["", ""]),
        json!({"String": ""}),
        json!({"Regex": ""}),
        json!({"Regex": "(a"}),
        json!({"type": "Lowercase"}),
        json!({"type": "Strip", "strip_left": true, "strip_right": true}),
        json!({"type": "Prepend", "prepend": ""}),
        json!({"type": "ByteLevel"}),
        json!({"type": "Precompiled"}),
        json!({"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAAA="}),
        json!({"precompiled_charsmap": "BAAAAAAAAAA="}),
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true}),
        json!({"type": "Metaspace", "replacement": "", "prepend_scheme": "always", "split": true}),
        json!({"type": "FixedLength", "length": 0}),
        json!({"length": 0}),
        json!({"type": "UnicodeScripts"}),
        json!({"type": "Digits", "individual_digits": true}),
        json!({"type": "Punctuation", "behavior": "MergedWithNext"}),
        json!({"type": "BertProcessing", "sep": ["a", 1], "cls": ["b", u32::MAX]}),
        json!({"type": "Strip", "content": " ", "start": 1, "stop": u64::MAX}),
        template(piece("A")),
        template(piece("B")),
        piece("B"),
    ]
}

fn damage() -> impl Strategy<Value = Vec<Damage>> {
    let place = any::<Index>;
    let one = prop_oneof![
        4 => (place(), prop::sample::select(odd_values())).prop_map(|(at, value)| Damage::Put(at, value)),
        2 => (place(), place()).prop_map(|(from, to)| Damage::Copy(from, to)),
        1 => place().prop_map(Damage::Remove),
    ];
    prop::collection::vec(one, 1..4)
}

fn place_of(at: Index, json: &Value) -> String {
    let mut all = Vec::new();
    places(json, "", &mut all);
    all.swap_remove(at.index(all.len()))
}

fn apply(json: &mut Value, damages: &[Damage]) {
    for damage in damages {
        match damage {
            Damage::Put(at, value) => {
                let place = place_of(*at, json);
                *json.pointer_mut(&place).unwrap() = value.clone();
            }
            Damage::Copy(from, to) => {
                let value = json.pointer(&place_of(*from, json)).unwrap().clone();
                let place = place_of(*to, json);
                *json.pointer_mut(&place).unwrap() = value;
            }
            Damage::Remove(at) => {
                let place = place_of(*at, json);
                let Some((parent, name)) = place.rsplit_once('/') else {
                    continue;
                };
                match json.pointer_mut(parent).unwrap() {
                    Value::Array(items) => drop(items.remove(name.parse().unwrap())),
                    parent => drop(parent.as_object_mut().unwrap().remove(name)),
                }
            }
        }
    }
}

#[test]
fn the_undamaged_file_is_sound() {
    read_and_use(&small().to_string()).unwrap();
}

/// The `tokenizers` crate panics over each of these.
#[test]
fn what_would_panic_is_refused_in_words() {
    let replaced = |place: &str, value: Value| {
        let mut json = small();
        *json.pointer_mut(place).unwrap() = value;
        read_and_use(&json.to_string()).unwrap_err().to_string()
    };
    let stage = "/normalizer/normalizers/1";
    let template = "/post_processor/single/0";
    for (place, value, expected) in [
        (
            stage,
            json!({"type": "Precompiled"}),
            "`Precompiled` is not supported",
        ),
        (
            stage,
            json!({"precompiled_charsmap": "AAAAAA=="}),
            "`Precompiled` is not supported",
        ),
        (
            stage,
            json!({"type": "Prepend", "prepend": ""}),
            "an empty text in front",
        ),
        (
            stage,
            json!({"type": "Replace", "pattern": {"String": ""}, "content": "x"}),
            "replaces what is empty",
        ),
        (
            stage,
            json!({"type": "Replace", "pattern": {"Regex": "x*"}, "content": "x"}),
            "replaces what is empty",
        ),
        (
            "/pre_tokenizer",
            json!({"type": "FixedLength", "length": 0}),
            "pieces of length 0",
        ),
        (
            template,
            json!({"Sequence": {"id": "B", "type_id": 0}}),
            "names what it does not have",
        ),
        (
            template,
            json!({"SpecialToken": {"id": "</s>", "type_id": 0}}),
            "names what it does not have",
        ),
    ] {
        let error = replaced(place, value);
        assert!(error.contains(expected), "{error}");
    }
}

/// Its engine counts the ways it tries, and the crate that asks it panics.
#[test]
fn a_text_with_too_many_ways_to_match_is_an_error() {
    let mut json = small();
    *json
        .pointer_mut("/pre_tokenizer/pretokenizers/0/pattern")
        .unwrap() = json!({"Regex": "(a|b|ab)*bc"});
    let tokenizer = Tokenizer::from_json("foreign.json", json.to_string().as_bytes()).unwrap();
    let endless = format!("{}acbc", "ab".repeat(28));
    for specials in [Specials::PARSE, Specials::PARSE_AND_ADD] {
        let error = tokenizer.encode(&endless, specials).unwrap_err();
        assert!(
            error.to_string().contains("gives up on this text"),
            "{error}"
        );
        assert_eq!(
            tokenizer.encode("abab", specials).unwrap().last(),
            Some(&4),
            "the next text is read"
        );
    }
}

#[test]
fn of_two_models_in_a_file_the_one_that_was_checked_counts() {
    let other = r#"{"model": {"type": "BPE", "continuing_subword_prefix": "--", "vocab": {"a": 0}, "merges": [["a", "a"]]},"#;
    read_and_use(&small().to_string().replacen('{', other, 1)).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn damaged_values_never_panic(damages in damage()) {
        let mut json = small();
        apply(&mut json, &damages);
        let _ = read_and_use(&json.to_string());
    }

    #[test]
    fn damaged_bytes_never_panic(
        at in any::<Index>(), byte in any::<u8>(), cut in any::<Index>(), repeated in any::<Index>(),
    ) {
        let json = small().to_string();
        let mut bytes = json.clone().into_bytes();
        *at.get_mut(&mut bytes) = byte;
        let _ = read_and_use(&String::from_utf8_lossy(&bytes));
        let pieces = [cut.index(bytes.len()), repeated.index(bytes.len())];
        let [from, to] = if pieces[0] < pieces[1] { pieces } else { [pieces[1], pieces[0]] };
        let _ = read_and_use(&String::from_utf8_lossy(&bytes[..from]));
        let again = [&bytes[..to], &bytes[from..]].concat();
        let _ = read_and_use(&String::from_utf8_lossy(&again));
    }
}
