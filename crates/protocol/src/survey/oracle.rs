//! The survey against `serde_json`: whatever one takes, the other takes and reads the same.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::RawValue;

use super::*;

fn survey(body: &str) -> Result<Survey, ApiError> {
    Survey::read(body.as_bytes())
}

fn refusal(body: &str) -> String {
    survey(body).unwrap_err().message().to_owned()
}

fn edited(body: &str, edit: impl for<'a> FnOnce(&mut Edits<'a>)) -> String {
    let body = Bytes::from(body.to_owned());
    let survey = Survey::read(&body).unwrap();
    let mut edits = Edits::new(&survey, &body);
    edit(&mut edits);
    let pieces = edits.finish();
    assert_eq!(pieces.len(), pieces.concat().len());
    String::from_utf8(pieces.concat()).unwrap()
}

#[test]
fn the_fields_of_a_chat_are_found() {
    let body = r#" {"model":"m\u00e9","messages":[{"role":"user","content":"a \"b\" {"}],"n":2,
        "stream":true,"stream_options":{"include_usage":true},"max_tokens":5,"max_completion_tokens":7,
        "temperature":0,"seed":-3,"priority":-1,"service_tier":"flex","user":null} "#;
    let seen = survey(body).unwrap();
    assert_eq!(seen.model.as_deref(), Some("mé"));
    assert!(seen.stream && seen.include_usage && !seen.continuous_usage);
    assert_eq!((seen.max_tokens, seen.n, seen.prompts), (Some(7), 2, 1));
    assert_eq!((seen.temperature, seen.seed), (Some(0.0), Some(-3)));
    assert_eq!(seen.priority, Some(-1));
    assert_eq!(seen.service_tier.as_deref(), Some("flex"));
    let messages = &body[seen.value("messages").unwrap()];
    assert_eq!(messages, r#"[{"role":"user","content":"a \"b\" {"}]"#);
    assert!(!seen.has("user") && seen.kind("user") == Some(Kind::Null));
}

#[test]
fn a_field_sent_twice_is_refused_however_it_is_spelt() {
    for body in [
        r#"{"stream": false, "stream": true}"#,
        r#"{"cache_salt": "a", "prompt": "x", "cache_salt": "b"}"#,
        r#"{"cache_salt": "a", "cache\u005fsalt": "b"}"#,
        r#"{"stream_options": {"include_usage": false, "include_usage": true}}"#,
        r#"{"unknown": 1, "unknown": 2}"#,
    ] {
        assert!(refusal(body).contains("stands twice"), "{body}");
    }
    // Deeper down nothing is checked, so nothing can be smuggled past a check.
    assert!(survey(r#"{"metadata": {"a": 1, "a": 2}}"#).is_ok());
}

#[test]
fn an_escaped_key_is_the_key_it_spells() {
    let seen = survey(r#"{"\u0073tream": true, "mo\u0064el": "m"}"#).unwrap();
    assert!(seen.stream);
    assert_eq!(seen.model.as_deref(), Some("m"));
    assert!(refusal(r#"{"\ud800": 1}"#).contains("not text"));
    let salted = edited(r#"{"cache\u005fsalt": "mine", "n": 1}"#, |edits| {
        edits.set("cache_salt", "theirs");
    });
    assert_eq!(salted, r#"{"cache_salt":"theirs","n": 1}"#);
}

#[test]
fn fields_that_we_act_on_must_have_their_documented_type() {
    for (field, body) in [
        ("stream", r#"{"stream": "true"}"#),
        ("stream", r#"{"stream": 1}"#),
        ("n", r#"{"n": "3"}"#),
        ("n", r#"{"n": 3.0}"#),
        ("n", r#"{"n": -1}"#),
        ("max_tokens", r#"{"max_tokens": 1e3}"#),
        ("temperature", r#"{"temperature": "0"}"#),
        ("model", r#"{"model": ["m"]}"#),
        ("priority", r#"{"priority": true}"#),
        ("cache_salt", r#"{"cache_salt": 7}"#),
        ("stream_options", r#"{"stream_options": [true]}"#),
        (
            "stream_options",
            r#"{"stream_options": {"include_usage": 1}}"#,
        ),
    ] {
        assert_eq!(survey(body).unwrap_err().param(), Some(field), "{body}");
    }
    assert!(survey(r#"{"stream": null, "n": null, "stream_options": null}"#).is_ok());
}

#[test]
fn what_other_parsers_read_differently_is_refused() {
    for body in [
        "\u{feff}{}",
        r#"{"temperature": NaN}"#,
        r#"{"temperature": Infinity}"#,
        r#"{"temperature": -Infinity}"#,
        "{'n': 1}",
        r#"{"n": 1,}"#,
        r#"{"n": 01}"#,
        r#"{"n": +1}"#,
        r#"{"n": 1} {"n": 2}"#,
        "{\"user\": \"a\u{0}b\"}",
        "{\"user\": \"a\nb\"}",
        r#"{"user": "\x41"}"#,
        r#"{/* */"n": 1}"#,
        r#"{n: 1}"#,
        "[]",
        "null",
        "",
        "\"{}\"",
    ] {
        assert!(survey(body).is_err(), "{body:?}");
    }
    let utf16: Vec<u8> = r#"{"n": 1}"#.encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert!(Survey::read(&utf16).is_err());
    assert!(Survey::read(b"{\"user\": \"\xff\"}").is_err());
}

#[test]
fn bounds_hold_for_depth_digits_fields_and_counts() {
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!("{{\"metadata\": {open}{close}}}")
    };
    let deepest = MAX_DEPTH as usize - 1;
    assert!(survey(&nested(deepest)).is_ok());
    assert!(refusal(&nested(deepest + 1)).contains("deep"));
    assert!(refusal(&nested(1_000_000)).contains("deep"));
    let number = |digits: usize| format!("{{\"metadata\": {}}}", "9".repeat(digits));
    assert!(survey(&number(MAX_NUMBER_BYTES)).is_ok());
    assert!(refusal(&number(MAX_NUMBER_BYTES + 1)).contains("digits"));
    let fields = |count: usize| {
        let fields: Vec<_> = (0..count).map(|i| format!("\"f{i}\": 0")).collect();
        format!("{{{}}}", fields.join(","))
    };
    assert!(survey(&fields(MAX_FIELDS)).is_ok());
    assert!(refusal(&fields(MAX_FIELDS + 1)).contains("fields"));

    let prompts = |count: usize| format!("{{\"prompt\": [{}]}}", vec!["\"a\""; count].join(","));
    assert_eq!(
        survey(&prompts(MAX_PROMPTS)).unwrap().prompts,
        MAX_PROMPTS as u64
    );
    assert!(survey(&prompts(MAX_PROMPTS + 1)).is_err());
    assert_eq!(survey(r#"{"prompt": [1, 2, 3]}"#).unwrap().prompts, 1);
    assert_eq!(survey(r#"{"prompt": [[1, 2], [3]]}"#).unwrap().prompts, 2);
    assert!(survey(r#"{"n": 129}"#).is_err());
    assert!(survey(r#"{"n": 1, "best_of": 1000000}"#).is_err());
    assert!(survey(r#"{"n": 128, "prompt": ["a", "b", "c", "d", "e"]}"#).is_err());
}

#[test]
fn unknown_fields_pass_only_if_the_tenant_may_send_them() {
    let seen = survey(r#"{"prompt": "x", "kv_transfer_params": {}}"#).unwrap();
    let refusal = seen.require_allowed(&BTreeSet::new()).unwrap_err();
    assert_eq!(refusal.param(), Some("kv_transfer_params"));
    let extra = BTreeSet::from(["kv_transfer_params".to_owned()]);
    assert_eq!(seen.require_allowed(&extra), Ok(()));
    let bomb = format!(
        "{{\"chat_template_kwargs\": {{\"x\": \"{}\"}}}}",
        "y".repeat(1 << 20)
    );
    let refusal = survey(&bomb).unwrap().require_allowed(&BTreeSet::new());
    assert_eq!(refusal.unwrap_err().param(), Some("chat_template_kwargs"));
}

#[test]
fn usage_is_asked_for_beside_the_other_options() {
    let usage = |body: &str| edited(body, |edits| edits.ask_for_usage());
    assert_eq!(
        usage(r#"{"stream": true}"#),
        r#"{"stream_options":{"include_usage":true},"stream": true}"#
    );
    assert_eq!(
        usage(r#"{"stream_options": {"a": [1], "include_usage": false, "b": 2}, "n": 1}"#),
        r#"{"stream_options":{"include_usage":true,"a": [1],"b": 2},"n": 1}"#
    );
    assert_eq!(
        usage(r#"{"stream_options": null}"#),
        r#"{"stream_options":{"include_usage":true}}"#
    );
}

#[test]
fn text_goes_in_before_the_end_of_a_value() {
    let continued = edited(r#"{"n": 1, "prompt": "ab", "seed": 2}"#, |edits| {
        edits.insert_before_end("prompt", Bytes::from_static(b"cd"));
        edits.set("max_tokens", &3);
    });
    assert_eq!(
        continued,
        r#"{"max_tokens":3,"n": 1, "prompt": "abcd", "seed": 2}"#
    );
}

#[test]
fn a_body_without_edits_is_the_same_bytes() {
    let body = Bytes::from_static(b" { \"n\" : 1 } ");
    let survey = Survey::read(&body).unwrap();
    let pieces = Edits::new(&survey, &body).finish();
    assert_eq!(pieces.iter().next().unwrap().as_ptr(), body.as_ptr());
}

const NAMES: [&str; 6] = ["model", "user", "metadata", "stop", "x", "caché"];

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        // Quarters, which every parser reads exactly.
        any::<i32>().prop_map(|n| Value::from(f64::from(n) / 4.0)),
        "[a-z\"\\\\\n\té😀\u{1}/ ]{0,70}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-c\"\\\\é]{0,3}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn body() -> impl Strategy<Value = BTreeMap<String, Value>> {
    let name = prop::sample::select(&NAMES[2..]).prop_map(str::to_owned);
    proptest::collection::btree_map(name, json(), 0..6)
}

proptest! {
    #[test]
    fn every_value_stands_where_serde_json_finds_it(body in body(), pretty in any::<bool>()) {
        let text = if pretty {
            serde_json::to_string_pretty(&body).unwrap()
        } else {
            serde_json::to_string(&body).unwrap()
        };
        let seen = survey(&text).unwrap();
        let oracle: BTreeMap<String, &RawValue> = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(seen.members.len(), oracle.len());
        for (name, raw) in oracle {
            let found = seen.member(&name).map(|member| &text[member.value.clone()]);
            prop_assert_eq!(found, Some(raw.get()));
        }
    }

    #[test]
    fn both_take_the_same_texts(text in r#"(\{ ?)("(a|n|\\u006e|\\n|é)?" ?:? ?(\[|\]|\{|\}|"x"|-?[0-9.eE+]{0,4}|true|nul|null|,| ){0,5},?){0,3}(\} ?)?"#) {
        let ours = members(text.as_bytes());
        let theirs = serde_json::from_str::<BTreeMap<String, &RawValue>>(&text);
        match (&ours, &theirs) {
            (Ok(ours), Ok(theirs)) => prop_assert_eq!(ours.len(), theirs.len()),
            (Err(ours), Ok(_)) => prop_assert!(ours.message().contains("twice"), "{}", ours),
            (Ok(_), Err(theirs)) => prop_assert!(false, "{}: {}", text, theirs),
            (Err(_), Err(_)) => {}
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
        let _ = Survey::read(&bytes);
    }

    #[test]
    fn edits_give_what_editing_the_parsed_body_gives(
        mut body in body(),
        removed in proptest::collection::vec(prop::sample::select(&NAMES[..]), 0..3),
        set in proptest::collection::btree_map(prop::sample::select(&NAMES[2..]), json(), 0..3),
    ) {
        let text = serde_json::to_string_pretty(&body).unwrap();
        let result = edited(&text, |edits| {
            for name in &removed {
                edits.remove(name);
            }
            for (name, value) in &set {
                edits.set(name, value);
            }
        });
        for name in &removed {
            body.remove(*name);
        }
        for (name, value) in set {
            body.insert(name.to_owned(), value);
        }
        let expected = serde_json::to_value(&body).unwrap();
        prop_assert_eq!(serde_json::from_str::<Value>(&result).unwrap(), expected);
        // And the gateway itself would take it: no edit makes a body with a field twice.
        prop_assert!(survey(&result).is_ok());
    }
}
