use super::super::{alphabet, gguf};
use super::split::{GPT2, Split};
use super::*;
use crate::tokenizer::fixture::Fixture;
use crate::{Specials, Tokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};

fn tokenizer(pre_tokenizer: &Value, rstrip: bool) -> Tokenizer {
    let fixture = Fixture {
        tokens: &[
            "Ġ", "Ċ", "Ã", "©", "Ģ", "Â", "ab", "abc", "Ġa", "Ġab", "ĠĠ", "<|", "'s",
        ],
        merges: json!([
            ["a", "b"],
            ["ab", "c"],
            ["Ġ", "a"],
            ["Ġ", "ab"],
            ["Ġ", "Ġ"],
            ["<", "|"],
            ["'", "s"]
        ]),
        normalizer: Value::Null,
        pre_tokenizer: pre_tokenizer.clone(),
    };
    fixture.with(|id| {
        json!([{"id": id, "content": "<|a|>", "single_word": false, "lstrip": false,
                "rstrip": rstrip, "normalized": false, "special": true}])
    })
}

fn byte_level(add_prefix_space: bool, use_regex: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": true, "use_regex": use_regex})
}

fn split_by(rule: &str) -> Value {
    json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": rule}, "behavior": "Isolated", "invert": false},
        byte_level(false, false)]})
}

const RULES: [&str; 4] = [gguf::LLAMA3, gguf::QWEN2, gguf::TEKKEN, GPT2];

fn known() -> Vec<Tokenizer> {
    let digits = json!({"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": true}, byte_level(false, true)]});
    let mut stages = vec![byte_level(false, true), byte_level(true, true), digits];
    stages.extend(RULES.map(split_by));
    stages.iter().map(|stage| tokenizer(stage, false)).collect()
}

#[test]
fn only_rules_that_are_known_are_cut_by() {
    for tokenizer in known() {
        assert!(Cuts::of(&tokenizer.parsing).is_some());
    }
    let reaching = tokenizer(&byte_level(false, true), true);
    assert!(Cuts::of(&reaching.parsing).is_none());
    for stage in [Value::Null, split_by(r"\w+ \w+"), byte_level(false, false)] {
        assert!(Cuts::of(&tokenizer(&stage, false).parsing).is_none());
    }
}

fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("a"),
        Just("ab"),
        Just("abc"),
        Just("A"),
        Just("b"),
        Just(" "),
        Just(" a"),
        Just(" ab"),
        Just("  "),
        Just("\n"),
        Just("\r\n"),
        Just("\t"),
        Just("'s"),
        Just("'"),
        Just("."),
        Just("1"),
        Just("23"),
        Just("<|a|>"),
        Just("<|"),
        Just("é"),
        Just("\u{301}"),
        Just("\u{a0}"),
        Just("\u{3000}"),
        Just("/"),
        Just(","),
        Just("("),
        Just("\""),
        Just("=\u{338}"),
        Just("<|a|> b"),
        Just("a|"),
        Just(" 4"),
        Just("re"),
        Just("\u{2014}"),
        Just("\u{2019}s"),
        Just("a\nb"),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn words_have_the_tokens_they_have_in_their_text(texts in proptest::collection::vec(any_text(), 1..4)) {
        thread_local! {
            static KNOWN: Vec<Tokenizer> = known();
        }
        KNOWN.with(|known| {
            for (which, tokenizer) in known.iter().enumerate() {
                for text in &texts {
                    let whole = tokenizer.parsing.encode_fast(text.as_str(), false).unwrap();
                    // Twice: learning, and knowing.
                    for _ in 0..2 {
                        let tokens = tokenizer.encode(text, Specials::PARSE).unwrap();
                        prop_assert_eq!(&tokens, whole.get_ids(), "tokenizer {} on {:?}", which, text);
                    }
                }
            }
            Ok(())
        })?;
    }
}

/// All bytes, a few hundred merges at random, several to the same token, and words that no merge leads to.
fn rich(pre_tokenizer: &Value, are_words_first: bool, normalizer: Value) -> Tokenizer {
    let mut tokens: Vec<String> = (0..=u8::MAX)
        .map(|byte| alphabet::character_of(byte).to_string())
        .collect();
    let mut joinable: Vec<String> = "etaoinshrdlTHE'(./\"0123Ġ Ċč"
        .chars()
        .map(String::from)
        .collect();
    joinable.retain(|token| tokens.contains(token));
    let mut merges: Vec<(String, String)> = Vec::new();
    let mut state = 1_u64;
    let mut draw = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % below
    };
    while merges.len() < 600 {
        let left = joinable[draw(joinable.len())].clone();
        let right = joinable[draw(joinable.len())].clone();
        let joined = format!("{left}{right}");
        if joined.chars().count() > 6 || merges.contains(&(left.clone(), right.clone())) {
            continue;
        }
        if !tokens.contains(&joined) {
            tokens.push(joined.clone());
            joinable.push(joined);
        }
        merges.push((left, right));
    }
    tokens.extend(["Ġxyz", "xyz", "('x", "987"].map(String::from));
    let vocab: serde_json::Map<String, Value> = (0..)
        .zip(tokens)
        .map(|(id, token)| (token, json!(id)))
        .collect();
    let file = json!({
        "version": "1.0",
        "added_tokens": [{"id": vocab.len(), "content": "<|a|>", "single_word": false, "lstrip": false,
                          "rstrip": false, "normalized": false, "special": true}],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "decoder": byte_level(false, true),
        "model": {"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": are_words_first},
    });
    Tokenizer::from_json("tokenizer.json", &serde_json::to_vec(&file).unwrap()).unwrap()
}

fn all_rich() -> Vec<Tokenizer> {
    let digits = |alone| {
        json!({"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": alone}, byte_level(false, true)]})
    };
    let mut stages = vec![byte_level(false, true), digits(true), digits(false)];
    stages.extend(RULES.map(split_by));
    let both = stages.iter().flat_map(|stage| {
        [
            rich(stage, false, Value::Null),
            rich(stage, true, json!({"type": "NFC"})),
        ]
    });
    let both: Vec<_> = both.collect();
    let splits = both
        .iter()
        .map(|tokenizer| Cuts::of(&tokenizer.parsing).unwrap().1.unwrap());
    let splits: Vec<Split> = splits.collect();
    let rules = [
        Split::Gpt2,
        Split::DigitsFirst { alone: true },
        Split::DigitsFirst { alone: false },
        Split::Llama3,
        Split::Qwen2,
        Split::Tekken,
    ];
    assert!(rules.iter().all(|rule| splits.contains(rule)));
    both
}

/// What the rules treat differently, what merges, and anything at all.
fn any_plain_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        8 => "[etaoinshrdl]{1,9}",
        4 => "[ ]?[THEtheao']{1,5}",
        4 => "[0-9]{1,5}",
        4 => "[ \\t\r\n]{1,3}",
        3 => "'(s|t|re|ve|m|ll|d|S|LL|Re)",
        3 => "[-(./\"!,;{}]{1,3}",
        2 => "[\\x00-\\x7f]{1,4}",
        1 => " ?xyz|\\('x|987",
        1 => "[a-z]{90,110}",
        1 => "<\\|a\\|>",
        3 => "[ ]?[a-eé-üÀ-ɏ]{1,6}",
        1 => "'[ſsſ]|[eé]\u{301}| \u{301}|[×÷ſªº]",
        1 => "\\PC{1,3}",
        1 => "\\s{1,3}",
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn plain_text_has_the_tokens_that_the_crate_finds(text in any_plain_text()) {
        thread_local! {
            static TOKENIZERS: Vec<Tokenizer> = all_rich();
        }
        TOKENIZERS.with(|tokenizers| {
            for (which, tokenizer) in tokenizers.iter().enumerate() {
                let whole = tokenizer.parsing.encode_fast(text.as_str(), false).unwrap();
                for _ in 0..2 {
                    let tokens = tokenizer.encode(&text, Specials::PARSE).unwrap();
                    prop_assert_eq!(&tokens, whole.get_ids(), "tokenizer {} on {:?}", which, text);
                }
                // Without cuts: the rule alone, over a long text.
                let plain = tokenizer.words().unwrap().plain.as_ref().unwrap();
                let mut tokens = Vec::new();
                if plain.holds(&text) && plain.encode(&tokenizer.parsing, &text, &mut Bench::default(), &mut tokens) {
                    prop_assert_eq!(&tokens, whole.get_ids(), "rule of {} on {:?}", which, text);
                }
            }
            Ok(())
        })?;
    }
}

#[test]
fn figures_are_not_remembered() {
    let tokenizer = &known()[0];
    let words = tokenizer.words().unwrap();
    words
        .encode(&tokenizer.parsing, "about 1789, or so")
        .unwrap();
    let is_known = |part: &str| words.memory.recall(&Key::of(part).unwrap()).is_some();
    assert!(is_known("about") && is_known(",") && is_known(" or"));
    assert!(!is_known(" 1789"));
}
