//! Secrets: named in the file, kept elsewhere, shown nowhere.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::load::Context;

/// The largest file a secret is read from: anything longer is the wrong file.
const MAX_SECRET_BYTES: u64 = 64 << 10;

/// Where a secret is kept: `{ env = "NAME" }` or `{ file = "path" }`. One of the two.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Place")]
pub struct Secret {
    #[serde(skip_serializing_if = "Option::is_none")]
    env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    #[serde(skip)]
    value: Option<String>,
}

/// What is told to whoever writes a secret into the file.
pub(crate) const NOT_HERE: &str =
    "secrets do not stand in this file; write { env = \"NAME\" } or { file = \"path\" }";

impl Secret {
    /// Kept in an environment variable.
    pub fn in_env(name: impl Into<String>) -> Self {
        Self {
            env: Some(name.into()),
            ..Self::default()
        }
    }

    /// Kept in a file.
    pub fn in_file(path: impl Into<PathBuf>) -> Self {
        Self {
            file: Some(path.into()),
            ..Self::default()
        }
    }

    /// The secret, for the one place that needs it. `None` before it was looked up.
    pub fn reveal(&self) -> Option<&str> {
        self.value.as_deref()
    }

    /// Looks it up.
    pub(crate) fn resolve(&mut self, context: &Context<'_>) -> Result<(), String> {
        let value = match (&self.env, &self.file) {
            (Some(name), _) => (context.env)(name)
                .ok_or_else(|| format!("the environment variable {name} is not set"))?,
            (None, Some(path)) => context.read_small(path, MAX_SECRET_BYTES)?,
            (None, None) => {
                return Err("write { env = \"NAME\" } or { file = \"path\" }".to_owned());
            }
        };
        let value = value.trim_end_matches(['\r', '\n']);
        if value.is_empty() {
            return Err(format!("{self:?} is empty"));
        }
        self.value = Some(value.to_owned());
        Ok(())
    }
}

/// As it stands in the file: a text is what people try first, and would be a secret in a file that gets copied.
#[derive(Deserialize)]
#[serde(untagged)]
enum Place {
    Kept {
        env: Option<String>,
        file: Option<PathBuf>,
    },
    Written(IgnoredAny),
}

impl TryFrom<Place> for Secret {
    type Error = &'static str;

    fn try_from(place: Place) -> Result<Self, Self::Error> {
        match place {
            Place::Kept {
                env: Some(_),
                file: Some(_),
            } => Err("a secret is kept in one place: env or file"),
            Place::Kept {
                env: None,
                file: None,
            }
            | Place::Written(IgnoredAny) => Err(NOT_HERE),
            Place::Kept { env, file } => Ok(Self {
                env,
                file,
                value: None,
            }),
        }
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "Where a secret is kept: in an environment variable or in a file",
            "properties": {
                "env": { "type": "string", "description": "The name of an environment variable" },
                "file": {
                    "type": "string",
                    "description": "A file, relative to this one; its last line break is not part of the secret",
                },
            },
            "minProperties": 1,
            "maxProperties": 1,
        })
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.env, &self.file) {
            (Some(name), _) => write!(out, "{{ env = {name:?} }}"),
            (None, Some(path)) => write!(out, "{{ file = {path:?} }}"),
            (None, None) => out.write_str("***"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_shows() {
        let mut secret = Secret::in_env("KEY");
        let env = |name: &str| (name == "KEY").then(|| "hunter2\n".to_owned());
        secret.resolve(&Context::with_env(&env)).unwrap();
        assert_eq!(secret.reveal(), Some("hunter2"));
        assert_eq!(format!("{secret:?}"), r#"{ env = "KEY" }"#);
        assert_eq!(serde_json::to_string(&secret).unwrap(), r#"{"env":"KEY"}"#);
    }

    #[test]
    fn a_secret_in_the_file_itself_is_refused_and_not_repeated() {
        for text in [r#""hunter2""#, "{}", r#"{"env": "A", "file": "b"}"#] {
            let error = serde_json::from_str::<Secret>(text)
                .unwrap_err()
                .to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn an_empty_secret_is_none() {
        let empty = |_: &str| Some("\n".to_owned());
        assert!(
            Secret::in_env("KEY")
                .resolve(&Context::with_env(&empty))
                .is_err()
        );
        let unset = |_: &str| None;
        assert!(
            Secret::in_env("KEY")
                .resolve(&Context::with_env(&unset))
                .is_err()
        );
    }

    #[test]
    fn a_file_holds_one_secret() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), "abc\r\n").unwrap();
        let mut secret = Secret::in_file("key");
        let context = Context::beside(folder.path());
        secret.resolve(&context).unwrap();
        assert_eq!(secret.reveal(), Some("abc"));
    }
}
