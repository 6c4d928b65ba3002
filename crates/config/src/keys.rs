//! Keys that nobody reads.
//!
//! A slip in a key must not be a silent default, so every key is looked up in the schema of the file.

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::nearest::suggest;
use crate::path::Path;

/// The most unknown keys that are told: somebody who has more is writing another file.
const MAX_TOLD: usize = 50;

/// Finds the keys of a document that its schema does not know: where each stands, and what to say of it.
pub(crate) fn unknown_keys(document: &DeTable<'_>, schema: &Value) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let walk = Walk { root: schema };
    walk.table(document, schema, &Path::default(), &mut found);
    found.truncate(MAX_TOLD);
    found
}

struct Walk<'a> {
    root: &'a Value,
}

impl<'a> Walk<'a> {
    fn table(
        &self,
        table: &DeTable<'_>,
        schema: &'a Value,
        path: &Path,
        found: &mut Vec<(usize, String)>,
    ) {
        let Some(known) = self.properties(schema) else {
            return;
        };
        for (key, value) in table {
            let name = key.get_ref();
            match known.get(&**name) {
                Some(schema) => self.value(value, schema, &path.key(name), found),
                None => found.push((key.span().start, unknown(name, path, known))),
            }
        }
    }

    fn value(
        &self,
        value: &Spanned<DeValue<'_>>,
        schema: &'a Value,
        path: &Path,
        found: &mut Vec<(usize, String)>,
    ) {
        match value.get_ref() {
            DeValue::Table(table) => self.table(table, schema, path, found),
            DeValue::Array(list) => {
                let Some(items) = self.resolve(schema, &|schema| schema.get("items")) else {
                    return;
                };
                for item in list {
                    self.value(item, items, path, found);
                }
            }
            _ => {}
        }
    }

    fn properties(&self, schema: &'a Value) -> Option<&'a Map<String, Value>> {
        self.resolve(schema, &|schema| schema.get("properties"))?
            .as_object()
    }

    /// A part of a schema, which may stand behind a reference or, for what may be left out, in one of several.
    fn resolve(
        &self,
        schema: &'a Value,
        part: &dyn Fn(&'a Value) -> Option<&'a Value>,
    ) -> Option<&'a Value> {
        if let Some(found) = part(schema) {
            return Some(found);
        }
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let target = self.root.pointer(reference.strip_prefix('#')?)?;
            return self.resolve(target, part);
        }
        let choices = schema.get("anyOf")?.as_array()?;
        choices.iter().find_map(|choice| self.resolve(choice, part))
    }
}

fn unknown(name: &str, path: &Path, known: &Map<String, Value>) -> String {
    let section = path.section();
    let place = match section.as_str() {
        "" => "this file",
        section => section,
    };
    let suggestion = suggest(name, known.keys().map(String::as_str));
    format!("there is no key {name:?} in {place}; {suggestion}")
}
