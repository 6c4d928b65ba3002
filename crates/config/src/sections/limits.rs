use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much may be used. What is left out is without limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Limits {
    /// Requests per minute; as many may come at once.
    pub requests_per_minute: Option<u32>,
    /// Tokens of prompts and answers per minute; as many may come at once.
    pub tokens_per_minute: Option<u64>,
    /// Requests at a time.
    pub concurrent: Option<u32>,
}

impl Limits {
    /// With the gaps filled from others.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            requests_per_minute: self.requests_per_minute.or(others.requests_per_minute),
            tokens_per_minute: self.tokens_per_minute.or(others.tokens_per_minute),
            concurrent: self.concurrent.or(others.concurrent),
        }
    }
}
