use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::cache::CacheRules;
use super::limits::Limits;
use crate::secret::{NOT_HERE, Secret};

/// How much a request matters when not all can be served.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Refused first.
    Low,
    /// Ordinary traffic.
    #[default]
    Normal,
    /// Refused last, waits longest.
    High,
}

impl From<Priority> for routing::Priority {
    fn from(priority: Priority) -> Self {
        match priority {
            Priority::Low => Self::Low,
            Priority::Normal => Self::Normal,
            Priority::High => Self::High,
        }
    }
}

/// One who may ask.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Tenant {
    /// What it is called in logs and metrics. Its salt follows from it: a new name is a cold cache.
    pub name: String,
    /// The keys that identify it, each kept elsewhere or as its hash.
    pub keys: Vec<Key>,
    /// Whether requests without a key are its own. At most one tenant can be.
    pub anonymous: bool,
    /// The models it may ask for, by name or alias; all if left out.
    pub models: Option<BTreeSet<String>>,
    /// The priority of its requests that ask for none.
    pub priority: Priority,
    /// The highest it may ask for; `priority` if left out.
    pub max_priority: Option<Priority>,
    /// Whether it may see how the gateway decides: worker names, decisions.
    pub trusted: bool,
    /// Fields of requests that go through to workers for it, beside those that everyone may send.
    pub extra_fields: BTreeSet<String>,
    /// How much it may use; gaps are filled from the section `limits`.
    pub limits: Limits,
    /// Which of its answers are kept; gaps are filled from the section `cache`.
    pub cache: CacheRules,
}

impl Tenant {
    /// The highest priority it may ask for.
    pub fn max_priority(&self) -> Priority {
        self.max_priority.unwrap_or(self.priority)
    }
}

/// An API key: `{ env = "NAME" }`, `{ file = "path" }`, or as its hash, `{ sha256 = "…" }`
/// (`printf %s "$KEY" | sha256sum`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", untagged)]
pub enum Key {
    /// As its hash.
    Hash {
        /// Its SHA-256, 64 hexadecimal digits.
        sha256: String,
    },
    /// Kept elsewhere.
    Kept(Secret),
}

/// As it stands in the file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Table {
        sha256: Option<String>,
        env: Option<String>,
        file: Option<PathBuf>,
    },
    Other(IgnoredAny),
}

impl TryFrom<Written> for Key {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        match written {
            Written::Table {
                sha256: Some(sha256),
                env: None,
                file: None,
            } => Ok(Self::Hash { sha256 }),
            Written::Table {
                sha256: None,
                env: Some(name),
                file: None,
            } => Ok(Self::Kept(Secret::in_env(name))),
            Written::Table {
                sha256: None,
                env: None,
                file: Some(path),
            } => Ok(Self::Kept(Secret::in_file(path))),
            Written::Table { .. } => {
                Err("write one of { env = \"NAME\" }, { file = \"path\" } and { sha256 = \"…\" }")
            }
            Written::Other(IgnoredAny) => Err(NOT_HERE),
        }
    }
}

impl JsonSchema for Key {
    fn schema_name() -> Cow<'static, str> {
        "Key".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "An API key, kept elsewhere or as its hash",
            "properties": {
                "env": { "type": "string", "description": "The name of an environment variable" },
                "file": { "type": "string", "description": "A file, relative to this one" },
                "sha256": {
                    "type": "string",
                    "description": "Its hash: printf %s \"$KEY\" | sha256sum",
                    "pattern": "^[0-9a-fA-F]{64}$",
                },
            },
            "minProperties": 1,
            "maxProperties": 1,
        })
    }
}
