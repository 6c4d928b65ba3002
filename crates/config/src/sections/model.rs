use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that clients may ask for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Model {
    /// What clients call it.
    pub name: String,
    /// Other names for it.
    pub aliases: Vec<String>,
    /// The pool whose workers answer.
    pub pool: Option<String>,
    /// What the workers call it; its own name if left out.
    pub served_as: Option<String>,
    /// Its tokenizer and chat template, for exact knowledge of what workers have cached: a Hugging Face folder, a
    /// `tokenizer.json` or a GGUF file. Without it, prompts are compared as text.
    pub tokenizer: Option<PathBuf>,
    /// A Jinja chat template instead of the tokenizer's own.
    pub chat_template: Option<PathBuf>,
    /// Most tokens of prompt and answer together, where the workers do not say.
    pub max_model_len: Option<usize>,
    /// Adapters on top of it.
    pub loras: Vec<Lora>,
    /// Serve it in this process instead of from a pool. At most one model can be.
    pub engine: Option<EngineModel>,
}

impl Model {
    /// What the workers call it.
    pub fn served_as(&self) -> &str {
        self.served_as.as_deref().unwrap_or(&self.name)
    }
}

/// An adapter that the workers have loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Lora {
    /// What clients call the model with it.
    pub name: String,
    /// What the workers call it; its own name if left out.
    pub served_as: Option<String>,
}

impl Lora {
    /// What the workers call it.
    pub fn served_as(&self) -> &str {
        self.served_as.as_deref().unwrap_or(&self.name)
    }
}

/// A model in this process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EngineModel {
    /// A GGUF file or a Hugging Face folder; the bundled model if left out.
    pub path: Option<PathBuf>,
}
