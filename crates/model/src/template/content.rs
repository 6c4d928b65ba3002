//! Messages as templates expect them.

use minijinja::Value;
use serde_json::Value as Json;

use crate::ModelError;

use super::json;

/// A message with its content as one text: most templates know nothing of lists of parts. Parts are
/// joined by line breaks, as vLLM joins them. Arguments of tool calls, which clients send as text,
/// become objects, because templates print them as JSON.
pub(super) fn message(message: &Json) -> Result<Value, ModelError> {
    let Some(fields) = message.as_object() else {
        return Err(ModelError::Conversation(
            "a message is not an object".to_owned(),
        ));
    };
    let mut pairs: Vec<(&str, Value)> = Vec::with_capacity(fields.len());
    for (name, value) in fields {
        let value = match (name.as_str(), value) {
            ("content", Json::Array(parts)) => Value::from(joined(parts)?),
            ("tool_calls", Json::Array(calls)) => calls.iter().map(tool_call).collect(),
            _ => json::to_value(value),
        };
        pairs.push((name, value));
    }
    Ok(Value::from_pairs(pairs))
}

fn joined(parts: &[Json]) -> Result<String, ModelError> {
    let texts = parts
        .iter()
        .map(|part| {
            let kind = part.get("type").and_then(Json::as_str);
            let text = part.get("text").and_then(Json::as_str);
            match (kind, text) {
                (Some("text" | "input_text" | "output_text") | None, Some(text)) => Ok(text),
                _ => Err(ModelError::Conversation(format!(
                    "content parts of type `{}` cannot be read by this model; send text",
                    kind.unwrap_or("(none)")
                ))),
            }
        })
        .collect::<Result<Vec<&str>, ModelError>>()?;
    Ok(texts.join("\n"))
}

fn tool_call(call: &Json) -> Value {
    let parsed = call
        .pointer("/function/arguments")
        .and_then(Json::as_str)
        .and_then(|text| serde_json::from_str::<Json>(text).ok());
    let mut call = call.clone();
    if let (Some(arguments), Some(parsed)) = (call.pointer_mut("/function/arguments"), parsed) {
        *arguments = parsed;
    }
    json::to_value(&call)
}
