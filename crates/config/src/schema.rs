//! The JSON schema of the file, for editors and for our own check of its keys.

use serde_json::Value;

use crate::sections::Config;

/// The schema of `forespeak.toml`, JSON Schema 2020-12.
pub fn schema() -> Value {
    schemars::schema_for!(Config).to_value()
}
