//! A JSON value as far as comparing needs it, and the bytes that stand for it.
//!
//! Two values have the same bytes exactly if they are the same value. Every part is written with its type
//! and its length, so no text can pass for structure.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use unicode_normalization::UnicodeNormalization;

use super::Unclear;

/// A value, borrowed from the body where it can be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    Natural(u64),
    Negative(i64),
    Float(f64),
    Text(Cow<'a, str>),
    List(Vec<Value<'a>>),
    /// As it was sent.
    Map(Vec<(Cow<'a, str>, Value<'a>)>),
    /// What parsers disagree about.
    Unclear(Unclear),
}

/// Integers from here on may lose digits on the way through a float, so two of them may look the same.
const FLOAT_INTEGERS_END: f64 = 9_007_199_254_740_992.0;

impl<'a> Value<'a> {
    pub(crate) fn parse(json: &'a str) -> Result<Self, Unclear> {
        serde_json::from_str(json).map_err(|_| Unclear::Unreadable)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value<'a>> {
        match self {
            Self::Map(members) => members
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number it is.
    #[expect(
        clippy::cast_precision_loss,
        reason = "sampling parameters are floats for those who use them"
    )]
    pub(crate) fn number(&self) -> Option<f64> {
        match *self {
            Self::Natural(value) => Some(value as f64),
            Self::Negative(value) => Some(value as f64),
            Self::Float(value) => Some(value),
            _ => None,
        }
    }

    /// The same value whatever the order of the keys of this very object.
    pub(crate) fn sort_keys(&mut self) {
        if let Self::Map(members) = self {
            members.sort_by(|a, b| a.0.cmp(&b.0));
        }
    }

    /// The same value with all its texts in Unicode's normal form C; keys stay as they are.
    pub(crate) fn normalise_texts(&mut self) {
        match self {
            Self::Text(text) if !unicode_normalization::is_nfc(text) => {
                *text = Cow::Owned(text.nfc().collect());
            }
            Self::List(values) => values.iter_mut().for_each(Self::normalise_texts),
            Self::Map(members) => members
                .iter_mut()
                .for_each(|(_, value)| value.normalise_texts()),
            _ => {}
        }
    }

    /// Whether any text within passes the test.
    pub(crate) fn any_text(&self, test: fn(&str) -> bool) -> bool {
        match self {
            Self::Text(text) => test(text),
            Self::List(values) => values.iter().any(|value| value.any_text(test)),
            Self::Map(members) => members.iter().any(|(_, value)| value.any_text(test)),
            _ => false,
        }
    }

    /// Appends the bytes that stand for it.
    pub(crate) fn write(&self, out: &mut Vec<u8>) -> Result<(), Unclear> {
        match self {
            Self::Null => out.push(b'z'),
            Self::Bool(value) => out.push(if *value { b't' } else { b'f' }),
            Self::Natural(value) => write_tagged(out, b'n', value.to_le_bytes()),
            Self::Negative(value) => write_tagged(out, b'i', value.to_le_bytes()),
            Self::Float(value) => write_tagged(out, b'd', value.to_bits().to_le_bytes()),
            Self::Text(text) => {
                out.push(b's');
                write_text(out, text);
            }
            Self::List(values) => {
                write_tagged(out, b'l', (values.len() as u64).to_le_bytes());
                for value in values {
                    value.write(out)?;
                }
            }
            Self::Map(members) => {
                write_tagged(out, b'm', (members.len() as u64).to_le_bytes());
                for (key, value) in members {
                    write_text(out, key);
                    value.write(out)?;
                }
            }
            Self::Unclear(why) => return Err(*why),
        }
        Ok(())
    }
}

fn write_tagged(out: &mut Vec<u8>, tag: u8, bytes: [u8; 8]) {
    out.push(tag);
    out.extend_from_slice(&bytes);
}

/// Appends a text with its length.
pub(crate) fn write_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// A key, borrowed where it has no escapes.
pub(crate) struct Key<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Key<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = Key<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a key")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Shape)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Value<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value<'de>, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value<'de>, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value<'de>, E> {
        Ok(Value::Natural(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value<'de>, E> {
        Ok(Value::Negative(value))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value<'de>, E> {
        Ok(if value.abs() < FLOAT_INTEGERS_END {
            Value::Float(value)
        } else {
            Value::Unclear(Unclear::Number)
        })
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value<'de>, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value<'de>, A::Error> {
        let mut members: Vec<(Cow<'de, str>, Value<'de>)> = Vec::new();
        while let Some((Key(key), value)) = map.next_entry()? {
            members.push((key, value));
        }
        let mut keys: Vec<&str> = members.iter().map(|(key, _)| &**key).collect();
        keys.sort_unstable();
        Ok(
            if keys
                .windows(2)
                .any(|pair| matches!(pair, [one, next] if one == next))
            {
                Value::Unclear(Unclear::RepeatedKey)
            } else {
                Value::Map(members)
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(json: &str) -> Result<Vec<u8>, Unclear> {
        let mut out = Vec::new();
        Value::parse(json)?.write(&mut out)?;
        Ok(out)
    }

    #[test]
    fn white_space_and_escapes_do_not_matter_and_everything_else_does() {
        assert_eq!(written(r#" { "a" : "\u0062" } "#), written(r#"{"a":"b"}"#));
        let all = [
            "null",
            "true",
            "false",
            "0",
            "1",
            "-1",
            "1.5",
            "0.0",
            r#""""#,
            r#""1""#,
            "[]",
            "[1]",
            "[[1]]",
            "[1,1]",
            "{}",
            r#"{"a":1}"#,
            r#"{"a":1,"b":2}"#,
            r#"{"b":2,"a":1}"#,
            r#""A""#,
            r#""a""#,
        ];
        for (place, one) in all.iter().enumerate() {
            for other in &all[place + 1..] {
                assert_ne!(written(one), written(other), "{one} {other}");
            }
        }
    }

    #[test]
    fn what_parsers_disagree_about_is_unclear() {
        assert_eq!(written(r#"{"a":1,"a":1}"#), Err(Unclear::RepeatedKey));
        assert_eq!(
            written(r#"[{"x":{"a":1,"\u0061":2}}]"#),
            Err(Unclear::RepeatedKey)
        );
        assert_eq!(written("18446744073709551616"), Err(Unclear::Number));
        assert_eq!(written("1e300"), Err(Unclear::Number));
        assert_eq!(written("{"), Err(Unclear::Unreadable));
        assert_eq!(written(&"[".repeat(100_000)), Err(Unclear::Unreadable));
    }

    #[test]
    fn the_normal_form_is_for_texts_not_for_keys() {
        let mut value = Value::parse("{\"e\u{301}\": [\"e\u{301}\", \"E\"]}").unwrap();
        value.normalise_texts();
        let wanted = Value::parse("{\"e\u{301}\": [\"é\", \"E\"]}").unwrap();
        assert_eq!(value, wanted);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(text in ".{0,64}") {
            let _ = written(&text);
        }
    }
}
