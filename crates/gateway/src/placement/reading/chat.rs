//! Messages and tools as vLLM shows them to a chat template.
//!
//! vLLM does not hand a request's messages to the template as they came: it joins text parts, drops
//! fields that it does not know, and fills in those of a tool that are missing. A prompt has the tokens
//! that the worker will compute only if the same is done here.

use serde_json::{Map, Value, json};

/// Messages as templates get them. Content that is no text cannot be tokenised here.
pub(super) fn messages(messages: Vec<Value>) -> Result<Vec<Value>, String> {
    messages.into_iter().map(message).collect()
}

fn message(message: Value) -> Result<Value, String> {
    let Value::Object(mut fields) = message else {
        return Err("a message is not an object".to_owned());
    };
    let mut take = |name: &str| fields.remove(name).filter(|value| !value.is_null());
    let role = match take("role") {
        Some(Value::String(role)) => role,
        _ => return Err("a message has no role".to_owned()),
    };
    let mut shown = Map::new();
    shown.insert("content".to_owned(), content(take("content"))?);
    match role.as_str() {
        "assistant" => {
            if let Some(Value::Array(calls)) = take("tool_calls")
                && !calls.is_empty()
            {
                let calls = calls.into_iter().map(tool_call).collect();
                shown.insert("tool_calls".to_owned(), Value::Array(calls));
            }
            if let Some(thought) = take("reasoning").or_else(|| take("reasoning_content")) {
                shown.insert("reasoning".to_owned(), thought.clone());
                shown.insert("reasoning_content".to_owned(), thought);
            }
        }
        "tool" => {
            if let Some(id) = take("tool_call_id") {
                shown.insert("tool_call_id".to_owned(), id);
            }
        }
        "developer" => {
            shown.insert("tools".to_owned(), take("tools").unwrap_or(Value::Null));
        }
        _ => {}
    }
    if let Some(name @ Value::String(_)) = take("name") {
        shown.insert("name".to_owned(), name);
    }
    shown.insert("role".to_owned(), Value::String(role));
    Ok(Value::Object(shown))
}

fn content(content: Option<Value>) -> Result<Value, String> {
    match content {
        None => Ok(Value::String(String::new())),
        Some(text @ Value::String(_)) => Ok(text),
        Some(Value::Array(parts)) => {
            let texts: Vec<&str> = parts.iter().map(text).collect::<Result<_, _>>()?;
            Ok(Value::String(texts.join("\n")))
        }
        Some(_) => Err("content is neither text nor a list of parts".to_owned()),
    }
}

fn text(part: &Value) -> Result<&str, String> {
    if let Value::String(text) = part {
        return Ok(text);
    }
    match part.get("type").and_then(Value::as_str) {
        Some("text" | "input_text" | "output_text" | "refusal" | "thinking") | None => {
            let text = ["text", "refusal", "thinking"]
                .iter()
                .find_map(|name| part.get(name)?.as_str());
            text.ok_or_else(|| "a part has no text".to_owned())
        }
        Some(kind) => Err(format!("a part of type {kind} is no text")),
    }
}

/// Arguments come as text; templates print them as an object, and nothing as an empty one.
fn tool_call(mut call: Value) -> Value {
    if let Some(Value::Object(function)) = call.get_mut("function") {
        match function.get("arguments") {
            None | Some(Value::Null) => {
                function.insert("arguments".to_owned(), json!({}));
            }
            Some(Value::String(text)) if text.is_empty() => {
                function.insert("arguments".to_owned(), json!({}));
            }
            _ => {}
        }
    }
    call
}

/// Tools with the fields in vLLM's order, missing ones null, unknown ones behind.
pub(super) fn tools(tools: Vec<Value>) -> Vec<Value> {
    tools.into_iter().map(tool).collect()
}

fn tool(tool: Value) -> Value {
    let Value::Object(mut fields) = tool else {
        return tool;
    };
    let kind = fields.shift_remove("type").unwrap_or(json!("function"));
    let function = match fields.shift_remove("function") {
        Some(Value::Object(given)) => {
            let mut given = given;
            let mut function = Map::new();
            for name in ["name", "description", "parameters"] {
                let value = given.shift_remove(name).unwrap_or(Value::Null);
                function.insert(name.to_owned(), value);
            }
            function.extend(given);
            Value::Object(function)
        }
        other => other.unwrap_or(Value::Null),
    };
    let mut shown = Map::new();
    shown.insert("type".to_owned(), kind);
    shown.insert("function".to_owned(), function);
    shown.extend(fields);
    Value::Object(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_only_what_templates_are_shown() {
        let given = vec![
            json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "junk": 1}),
            json!({"role": "assistant", "content": null, "reasoning_content": "hm",
                   "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": ""}}]}),
            json!({"role": "tool", "content": "42", "tool_call_id": "1", "name": "f"}),
            json!({"role": "assistant", "content": "done", "tool_calls": []}),
        ];
        assert_eq!(
            messages(given).unwrap(),
            [
                json!({"role": "user", "content": "a\nb"}),
                json!({"role": "assistant", "content": "", "reasoning": "hm", "reasoning_content": "hm",
                       "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}}]}),
                json!({"role": "tool", "content": "42", "tool_call_id": "1", "name": "f"}),
                json!({"role": "assistant", "content": "done"}),
            ]
        );
    }

    #[test]
    fn a_picture_is_not_read() {
        let given =
            vec![json!({"role": "user", "content": [{"type": "image_url", "image_url": {}}]})];
        assert!(messages(given).unwrap_err().contains("image_url"));
    }

    #[test]
    fn a_tool_is_spelled_as_vllm_spells_it() {
        let shown = tools(vec![
            json!({"function": {"strict": true, "parameters": {"b": 1, "a": 2}, "name": "f"}}),
        ]);
        assert_eq!(
            serde_json::to_string(&shown).unwrap(),
            r#"[{"type":"function","function":{"name":"f","description":null,"parameters":{"b":1,"a":2},"strict":true}}]"#
        );
    }
}
