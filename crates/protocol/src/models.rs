//! `/v1/models`.

use serde::Serialize;

/// One model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelCard {
    /// The name clients ask for.
    pub id: String,
    object: &'static str,
    /// Seconds since the Unix epoch.
    pub created: u64,
    owned_by: &'static str,
    /// Tokens of prompt and answer together, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_model_len: Option<usize>,
}

impl ModelCard {
    /// Describes a model.
    pub fn new(id: impl Into<String>, created: u64, max_model_len: Option<usize>) -> Self {
        Self {
            id: id.into(),
            object: "model",
            created,
            owned_by: "forespeak",
            max_model_len,
        }
    }
}

/// All models.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelList {
    object: &'static str,
    data: Vec<ModelCard>,
}

impl From<Vec<ModelCard>> for ModelList {
    fn from(data: Vec<ModelCard>) -> Self {
        Self {
            object: "list",
            data,
        }
    }
}
