//! What an answer must look like: `response_format`, and vLLM's two other names for it.

use serde::Deserialize;
use serde_json::Value;

use crate::error::ApiError;
use crate::fields::Fields;
use crate::limits::MAX_SCHEMA_BYTES;

/// What an answer must look like.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Format {
    /// Anything.
    #[default]
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON that satisfies this schema. Whether the schema can be enforced is the engine's to say.
    JsonSchema(Value),
}

#[derive(Deserialize)]
struct ResponseFormat {
    r#type: String,
    json_schema: Option<NamedSchema>,
}

#[derive(Deserialize)]
struct NamedSchema {
    schema: Option<Value>,
}

#[derive(Deserialize)]
struct StructuredOutputs {
    json: Option<Value>,
    json_object: Option<bool>,
    regex: Option<Value>,
    choice: Option<Value>,
    grammar: Option<Value>,
    structural_tag: Option<Value>,
}

impl Format {
    pub(crate) fn read(fields: &Fields<'_>) -> Result<Self, ApiError> {
        let mut found = Format::Text;
        for (field, read) in [
            ("response_format", response_format as Reader),
            ("structured_outputs", structured_outputs),
            ("guided_json", guided_json),
        ] {
            let Some(raw) = fields.raw(field) else {
                continue;
            };
            if raw.len() > MAX_SCHEMA_BYTES {
                return Err(ApiError::invalid(
                    field,
                    format!("{field} must be at most {MAX_SCHEMA_BYTES} bytes"),
                ));
            }
            let format = read(fields)?;
            if found != Format::Text && format != Format::Text {
                return Err(ApiError::invalid(
                    field,
                    format!("{field} asks for a format that was already asked for; send only one"),
                ));
            }
            if format != Format::Text {
                found = format;
            }
        }
        Ok(found)
    }
}

type Reader = fn(&Fields<'_>) -> Result<Format, ApiError>;

fn response_format(fields: &Fields<'_>) -> Result<Format, ApiError> {
    const FIELD: &str = "response_format";
    let format: ResponseFormat = fields.required(FIELD)?;
    match format.r#type.as_str() {
        "text" => Ok(Format::Text),
        "json_object" => Ok(Format::JsonObject),
        "json_schema" => format
            .json_schema
            .and_then(|named| named.schema)
            .ok_or_else(|| {
                ApiError::invalid(FIELD, "response_format.json_schema.schema is missing")
            })
            .and_then(|value| schema(FIELD, value)),
        other => Err(ApiError::invalid(
            FIELD,
            format!(
                "response_format.type {other:?} is not supported; use text, json_object or json_schema"
            ),
        )),
    }
}

fn structured_outputs(fields: &Fields<'_>) -> Result<Format, ApiError> {
    const FIELD: &str = "structured_outputs";
    let wanted: StructuredOutputs = fields.required(FIELD)?;
    let other = [
        wanted.regex,
        wanted.choice,
        wanted.grammar,
        wanted.structural_tag,
    ];
    if other.iter().any(Option::is_some) {
        return Err(ApiError::invalid(
            FIELD,
            "structured_outputs supports json and json_object only",
        ));
    }
    match (wanted.json, wanted.json_object) {
        (Some(value), _) => schema(FIELD, value),
        (None, Some(true)) => Ok(Format::JsonObject),
        (None, _) => Ok(Format::Text),
    }
}

fn guided_json(fields: &Fields<'_>) -> Result<Format, ApiError> {
    schema("guided_json", fields.required("guided_json")?)
}

/// A schema as an object, as `true`/`false`, or as a string that holds one of these.
fn schema(field: &'static str, value: Value) -> Result<Format, ApiError> {
    let value = match value {
        Value::String(text) => serde_json::from_str(&text).map_err(|error| {
            ApiError::invalid(
                field,
                format!("{field}: the schema is not valid JSON: {error}"),
            )
        })?,
        value => value,
    };
    match value {
        Value::Object(_) | Value::Bool(_) => Ok(Format::JsonSchema(value)),
        _ => Err(ApiError::invalid(
            field,
            format!("{field}: a JSON schema must be an object"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn format(body: &Value) -> Result<Format, ApiError> {
        Format::read(&Fields::parse(body.to_string().as_bytes())?)
    }

    #[test]
    fn a_schema_is_found_under_all_its_names() {
        let schema = json!({"type": "object"});
        let wanted = Format::JsonSchema(schema.clone());
        for body in [
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}),
            json!({"structured_outputs": {"json": schema}}),
            json!({"guided_json": schema}),
            json!({"guided_json": schema.to_string(), "response_format": {"type": "text"}}),
        ] {
            assert_eq!(format(&body).unwrap(), wanted, "{body}");
        }
        let object = json!({"response_format": {"type": "json_object"}});
        assert_eq!(format(&object).unwrap(), Format::JsonObject);
    }

    #[test]
    fn what_cannot_be_enforced_is_refused() {
        for (field, body) in [
            (
                "response_format",
                json!({"response_format": {"type": "xml"}}),
            ),
            (
                "response_format",
                json!({"response_format": {"type": "json_schema"}}),
            ),
            ("response_format", json!({"response_format": "json"})),
            (
                "structured_outputs",
                json!({"structured_outputs": {"regex": "a+"}}),
            ),
            ("guided_json", json!({"guided_json": 3})),
            ("guided_json", json!({"guided_json": "{"})),
            (
                "guided_json",
                json!({"guided_json": {}, "response_format": {"type": "json_object"}}),
            ),
            (
                "guided_json",
                json!({"guided_json": {"description": "x".repeat(MAX_SCHEMA_BYTES)}}),
            ),
        ] {
            assert_eq!(format(&body).unwrap_err().param(), Some(field), "{body}");
        }
    }
}
