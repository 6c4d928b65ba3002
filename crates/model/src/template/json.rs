//! JSON into template values, and back as Python's `json.dumps` writes it.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use serde_json::Value as Json;

/// Depth to which values are written. JSON from requests is not deeper.
const MAX_DEPTH: usize = 128;

pub(super) fn to_value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(value), _, _) => Value::from(value),
            (_, Some(value), _) => Value::from(value),
            (_, _, value) => Value::from(value.unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => items.iter().map(to_value).collect(),
        Json::Object(fields) => Value::from_pairs(
            fields
                .iter()
                .map(|(name, value)| (name.as_str(), to_value(value))),
        ),
    }
}

/// The `tojson` filter as transformers defines it: characters stay as they are, `, ` and `: ` between
/// items, no escaping for HTML.
pub(super) fn tojson(value: &Value, indent: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => kwargs.get("indent")?,
    };
    let indent = indent.and_then(|indent| usize::try_from(indent).ok());
    // Known to transformers; none changes what is written here by default.
    for name in ["ensure_ascii", "separators", "sort_keys"] {
        kwargs.get::<Option<Value>>(name)?;
    }
    kwargs.assert_all_used()?;
    let mut writer = Writer {
        out: String::new(),
        indent,
    };
    writer.value(value, 0)?;
    Ok(Value::from(writer.out))
}

struct Writer {
    out: String,
    indent: Option<usize>,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "value is nested too deeply",
            ));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => {
                let text = if value.is_true() { "true" } else { "false" };
                self.out.push_str(text);
            }
            ValueKind::Number => self.out.push_str(&value.to_string()),
            ValueKind::String => self.text(&value.to_string()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.list('[', ']', depth, &items, |writer, item| {
                    writer.value(item, depth + 1)
                })?;
            }
            ValueKind::Map => {
                let keys: Vec<Value> = value.try_iter()?.collect();
                self.list('{', '}', depth, &keys, |writer, key| {
                    writer.text(&key.to_string());
                    writer.out.push_str(": ");
                    writer.value(&value.get_item(key)?, depth + 1)
                })?;
            }
            kind => {
                let text = format!("cannot write {kind} as JSON");
                return Err(Error::new(ErrorKind::InvalidOperation, text));
            }
        }
        Ok(())
    }

    fn list(
        &mut self,
        open: char,
        close: char,
        depth: usize,
        items: &[Value],
        mut write: impl FnMut(&mut Self, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        for (index, item) in items.iter().enumerate() {
            match (index, self.indent) {
                (0, None) => {}
                (_, None) => self.out.push_str(", "),
                (0, Some(_)) => self.new_line(depth + 1),
                (_, Some(_)) => {
                    self.out.push(',');
                    self.new_line(depth + 1);
                }
            }
            write(self, item)?;
        }
        if !items.is_empty() && self.indent.is_some() {
            self.new_line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn new_line(&mut self, depth: usize) {
        self.out.push('\n');
        let width = depth * self.indent.unwrap_or_default();
        self.out.extend(std::iter::repeat_n(' ', width));
    }

    fn text(&mut self, text: &str) {
        self.out.push_str(&Json::from(text).to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn dump(json: Json, indent: Option<usize>) -> String {
        let mut writer = Writer {
            out: String::new(),
            indent,
        };
        writer.value(&to_value(&json), 0).unwrap();
        writer.out
    }

    #[test]
    fn looks_like_python() {
        let json = json!({"b": [1, 2.5, true, null], "a": {"ü": "\"\n"}, "e": []});
        assert_eq!(
            dump(json.clone(), None),
            r#"{"b": [1, 2.5, true, null], "a": {"ü": "\"\n"}, "e": []}"#
        );
        assert_eq!(
            dump(json!({"a": [1, 2]}), Some(2)),
            "{\n  \"a\": [\n    1,\n    2\n  ]\n}"
        );
    }
}
