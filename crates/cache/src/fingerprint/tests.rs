use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};

use super::fields::{FIELDS, Field};
use super::*;
use crate::secret::Secret;

const SUBJECT: Subject<'static> = Subject {
    tenant: "t",
    route: Route::Chat,
    model: "m",
    revision: "r",
    context: None,
    normalise_unicode: false,
};

fn question_of(subject: &Subject<'_>, body: &str) -> Result<Question, Unclear> {
    recognise(&Secret::from_text("s").keys(), subject, body.as_bytes())
}

fn print_of(subject: &Subject<'_>, body: &str) -> Fingerprint {
    question_of(subject, body).unwrap().fingerprint
}

fn print(body: &str) -> Fingerprint {
    print_of(&SUBJECT, body)
}

#[test]
fn what_means_the_same_has_the_same_fingerprint() {
    let plain = r#"{"messages":[{"role":"user","content":"hi"}],"temperature":0}"#;
    for same in [
        r#"{ "temperature" : 0.0, "messages": [{"content": "h\u0069", "role": "user"}] }"#,
        r#"{"messages":[{"role":"user","content":"hi"}],"temperature":-0.0,"n":1,"stop":null}"#,
        r#"{"messages":[{"role":"user","content":"hi"}],"temperature":0e5,"logprobs":false,
            "presence_penalty":0.0,"tools":null,"response_format":{"type":"text"}}"#,
        r#"{"messages":[{"role":"user","content":"hi"}],"temperature":0,"stream":true,
            "stream_options":{"include_usage":true},"user":"u","priority":-3,"metadata":{"a":"b"},
            "store":false,"service_tier":"flex","session_id":"x"}"#,
    ] {
        assert_eq!(print(plain), print(same), "{same}");
    }
    let parts = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}"#;
    let turned = r#"{"messages":[{"content":[{"text":"hi","type":"text"}],"role":"user"}]}"#;
    assert_eq!(print(parts), print(turned));
    assert_eq!(
        print(r#"{"messages":[],"logit_bias":{"1":2,"3":4}}"#),
        print(r#"{"messages":[],"logit_bias":{"3":4,"1":2}}"#)
    );
}

#[test]
fn what_only_looks_the_same_has_another_fingerprint() {
    let chat = |rest: &str| {
        let comma = if rest.is_empty() { "" } else { "," };
        print(&format!(
            r#"{{"messages":[{{"role":"user","content":"hi"}}]{comma}{rest}}}"#
        ))
    };
    for (one, other) in [
        // vLLM takes these from the model when they are absent.
        ("", r#""temperature":1"#),
        ("", r#""top_p":1"#),
        ("", r#""repetition_penalty":1"#),
        ("", r#""max_tokens":null"#),
        // A template may write a tool as it came; a grammar follows the order of the properties.
        (r#""tools":[{"a":1,"b":2}]"#, r#""tools":[{"b":2,"a":1}]"#),
        (
            r#""response_format":{"type":"json_schema","json_schema":{"schema":{"properties":{"a":{},"b":{}}}}}"#,
            r#""response_format":{"type":"json_schema","json_schema":{"schema":{"properties":{"b":{},"a":{}}}}}"#,
        ),
        (r#""tools":[{"x":1}]"#, r#""tools":[{"x":1.0}]"#),
        (r#""stop":"A""#, r#""stop":"a""#),
        (r#""cache_salt":"a""#, r#""cache_salt":"b""#),
        (
            r#""metadata":{"context_hash":"a"}"#,
            r#""metadata":{"context_hash":"b"}"#,
        ),
        ("", r#""metadata":{"context_hash":""}"#),
    ] {
        assert_ne!(chat(one), chat(other), "{one} {other}");
    }
}

#[test]
fn everything_around_the_request_counts() {
    let body = r#"{"prompt":"hi"}"#;
    let base = Subject {
        route: Route::Completions,
        ..SUBJECT
    };
    let prints: Vec<Fingerprint> = [
        base,
        Subject {
            tenant: "u",
            ..base
        },
        Subject { model: "n", ..base },
        Subject {
            revision: "2",
            ..base
        },
        Subject {
            context: Some(""),
            ..base
        },
        Subject {
            context: Some("c"),
            ..base
        },
        // Parts that only look like another split of the same text.
        Subject {
            tenant: "tm",
            model: "",
            ..base
        },
        Subject {
            tenant: "",
            model: "tm",
            ..base
        },
    ]
    .iter()
    .map(|subject| print_of(subject, body))
    .collect();
    for (place, one) in prints.iter().enumerate() {
        assert!(!prints[place + 1..].contains(one), "{place}");
    }
    let other_key = recognise(&Secret::from_text("other").keys(), &base, body.as_bytes());
    assert_ne!(other_key.unwrap().fingerprint, prints[0]);
}

#[test]
fn the_context_is_a_header_or_a_field() {
    let header = Subject {
        context: Some("c"),
        ..SUBJECT
    };
    let field = r#"{"messages":[],"metadata":{"context_hash":"c"}}"#;
    let plain = r#"{"messages":[]}"#;
    assert_eq!(print_of(&header, plain), print(field));
    assert_eq!(print_of(&header, field), print(field));
    let other = Subject {
        context: Some("d"),
        ..SUBJECT
    };
    assert_eq!(question_of(&other, field), Err(Unclear::Context));
    let long = "x".repeat(MAX_CONTEXT_BYTES + 1);
    let long = Subject {
        context: Some(&long),
        ..SUBJECT
    };
    assert_eq!(question_of(&long, plain), Err(Unclear::Context));
}

#[test]
fn unicode_forms_are_one_only_where_that_is_asked_for() {
    let composed = r#"{"messages":[{"role":"user","content":"é"}]}"#;
    let decomposed = "{\"messages\":[{\"role\":\"user\",\"content\":\"e\u{301}\"}]}";
    assert_ne!(print(composed), print(decomposed));
    let normalising = Subject {
        normalise_unicode: true,
        ..SUBJECT
    };
    assert_eq!(
        print_of(&normalising, composed),
        print_of(&normalising, decomposed)
    );
    let upper = r#"{"messages":[{"role":"user","content":"É"}]}"#;
    assert_ne!(
        print_of(&normalising, composed),
        print_of(&normalising, upper)
    );
}

#[test]
fn what_cannot_be_told_for_certain_has_no_fingerprint() {
    for (why, body) in [
        (Unclear::Unreadable, "[]"),
        (Unclear::Unreadable, r#"{"messages":[]"#),
        (Unclear::Unreadable, r#"{"messages":[],"stream":"yes"}"#),
        (
            Unclear::UnknownField,
            r#"{"messages":[],"new_switch":null}"#,
        ),
        (
            Unclear::UnknownField,
            r#"{"messages":[],"prompt":"of another route"}"#,
        ),
        (Unclear::RepeatedKey, r#"{"n":1,"n":2}"#),
        (Unclear::RepeatedKey, r#"{"n":1,"\u006e":2}"#),
        (
            Unclear::RepeatedKey,
            r#"{"messages":[{"role":"user","role":"system"}]}"#,
        ),
        (
            Unclear::Number,
            r#"{"seed":123456789012345678901234567890}"#,
        ),
        (Unclear::Field("store"), r#"{"store":true}"#),
        (
            Unclear::Field("kv_transfer_params"),
            r#"{"kv_transfer_params":{}}"#,
        ),
        (
            Unclear::Field("stream_options"),
            r#"{"stream_options":{"include_usage":true}}"#,
        ),
        (
            Unclear::Field("stream_options"),
            r#"{"stream":true,"stream_options":{"continuous_usage_stats":true}}"#,
        ),
        (
            Unclear::RemoteContent,
            r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x/y"}}]}]}"#,
        ),
        (Unclear::Context, r#"{"metadata":{"context_hash":7}}"#),
    ] {
        assert_eq!(question_of(&SUBJECT, body), Err(why), "{body}");
    }
    let inline = r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:a://b"}}]}]}"#;
    assert!(question_of(&SUBJECT, inline).is_ok());
}

#[test]
fn a_question_tells_how_its_answer_is_wanted() {
    let question = |body| question_of(&SUBJECT, body).unwrap();
    assert!(question(r#"{"temperature":0}"#).deterministic);
    assert!(question(r#"{"temperature":0.0}"#).deterministic);
    assert!(question(r#"{"temperature":1,"seed":7}"#).deterministic);
    assert!(!question(r#"{"temperature":1,"seed":null}"#).deterministic);
    assert!(!question("{}").deterministic);
    let streamed = question(r#"{"stream":true,"stream_options":{"include_usage":true}}"#);
    assert_eq!(
        streamed.wants,
        Wants {
            stream: true,
            include_usage: true
        }
    );
    assert_eq!(question(r#"{"stream":false}"#).wants, Wants::default());
}

#[test]
fn the_same_bytes_are_recognised_without_reading_them() {
    let recogniser = Recogniser::new(Secret::from_text("s").keys());
    let body = br#"{"messages":[],"temperature":0}"#;
    let first = recogniser.recognise(&SUBJECT, body).unwrap();
    let again = recogniser.recognise(&SUBJECT, body).unwrap();
    assert!(std::sync::Arc::ptr_eq(&first, &again));
    let foreign = Subject {
        tenant: "u",
        ..SUBJECT
    };
    let other = recogniser.recognise(&foreign, body).unwrap();
    assert_ne!(first.question.fingerprint, other.question.fingerprint);
    let turns: Vec<u8> = (0..5).map(|_| first.next_variant(3)).collect();
    assert_eq!(turns, [0, 1, 2, 0, 1]);
}

#[test]
fn variants_have_names_of_their_own() {
    let print = print("{}");
    assert_eq!(print.variant(0), print);
    assert_ne!(print.variant(1), print);
    assert_ne!(print.variant(1), print.variant(2));
}

fn any_json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        (-3i64..4).prop_map(Json::from),
        (-8i32..8).prop_map(|eighths| Json::from(f64::from(eighths) / 8.0)),
        "[aAé1 ]{0,2}".prop_map(Json::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Json::from),
            proptest::collection::btree_map("[abé]{1,2}", inner, 0..3)
                .prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    })
}

fn answer_fields(route: Route) -> Vec<&'static Field> {
    FIELDS
        .iter()
        .filter(|row| row.route.is_none_or(|of| of == route))
        .filter(|row| matches!(row.meaning, Meaning::Answer(..)))
        .collect()
}

/// What a value says, told another way than the code under test does: `None` is what absence says.
fn says(row: &Field, value: Option<&Json>) -> Option<Json> {
    let Meaning::Answer(absent, form) = row.meaning else {
        return None;
    };
    let by_value = |value: &Json| match (form, value.as_f64()) {
        (Form::Number, Some(number)) => json!(number + 0.0),
        _ => value.clone(),
    };
    let default = match absent {
        Absent::Open => None,
        Absent::Null => Some(Json::Null),
        Absent::Is(json) => Some(by_value(&serde_json::from_str(json).unwrap())),
    };
    value
        .map(by_value)
        .filter(|said| Some(said) != default.as_ref())
}

fn request(fields: &[(&'static str, Option<Json>)]) -> String {
    let present = fields
        .iter()
        .filter_map(|(name, value)| Some(((*name).to_owned(), value.clone()?)));
    Json::Object(present.collect::<Map<_, _>>()).to_string()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Over the whole table: whatever else a request says, changing one field that can change the answer
    /// is never a hit.
    #[test]
    fn a_change_of_any_single_field_is_never_a_hit(
        route in prop_oneof![Just(Route::Chat), Just(Route::Completions)],
        others in proptest::collection::vec((any::<prop::sample::Index>(), any_json()), 0..6),
        at in any::<prop::sample::Index>(),
        before in proptest::option::of(any_json()),
        after in proptest::option::of(any_json()),
    ) {
        let rows = answer_fields(route);
        let row = rows[at.index(rows.len())];
        prop_assume!(says(row, before.as_ref()) != says(row, after.as_ref()));
        let mut fields: Vec<(&'static str, Option<Json>)> = others
            .into_iter()
            .map(|(at, value)| (rows[at.index(rows.len())].name, Some(value)))
            .filter(|(name, _)| *name != row.name)
            .collect();
        let subject = Subject { route, ..SUBJECT };
        fields.push((row.name, before));
        let one = request(&fields);
        fields.pop();
        fields.push((row.name, after));
        let other = request(&fields);
        // Two maps whose keys differ only in order say the same to JSON, so only unequal ones are compared.
        if let (Ok(one), Ok(other)) = (question_of(&subject, &one), question_of(&subject, &other)) {
            prop_assert_ne!(one.fingerprint, other.fingerprint);
        }
    }

    /// The same for what is inside a message.
    #[test]
    fn a_change_inside_a_message_is_never_a_hit(
        before in proptest::collection::btree_map("(role|content|name|tool_calls|x)", any_json(), 0..4),
        after in proptest::collection::btree_map("(role|content|name|tool_calls|x)", any_json(), 0..4),
        first in any::<bool>(),
    ) {
        prop_assume!(before != after);
        let body = |message: &std::collections::BTreeMap<String, Json>| {
            let other = json!({"role": "system", "content": "be kind"});
            let messages = if first { json!([message, other]) } else { json!([other, message]) };
            json!({"messages": messages}).to_string()
        };
        if let (Ok(one), Ok(other)) = (
            question_of(&SUBJECT, &body(&before)),
            question_of(&SUBJECT, &body(&after)),
        ) {
            prop_assert_ne!(one.fingerprint, other.fingerprint);
        }
    }

    /// Every field, delivered or answered, keeps tenants apart.
    #[test]
    fn two_tenants_never_share_a_fingerprint(
        values in proptest::collection::vec((any::<prop::sample::Index>(), any_json()), 0..6),
        tenants in ("[ab]{0,2}", "[ab]{0,2}"),
    ) {
        prop_assume!(tenants.0 != tenants.1);
        let rows = answer_fields(Route::Chat);
        let fields: Vec<(&'static str, Option<Json>)> = values
            .into_iter()
            .map(|(at, value)| (rows[at.index(rows.len())].name, Some(value)))
            .collect();
        let body = request(&fields);
        let one = question_of(&Subject { tenant: &tenants.0, ..SUBJECT }, &body);
        let other = question_of(&Subject { tenant: &tenants.1, ..SUBJECT }, &body);
        if let (Ok(one), Ok(other)) = (one, other) {
            prop_assert_ne!(one.fingerprint, other.fingerprint);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
        let _ = recognise(&Secret::from_text("s").keys(), &SUBJECT, &bytes);
    }
}
