use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cache::Prices;

/// Something that clients may ask for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Model {
    /// What clients call it; learnt from the workers of its pool if left out.
    pub name: String,
    /// Other names for it.
    pub aliases: Vec<String>,
    /// The pool whose workers answer; the only one if left out.
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
    /// Which weights and settings are behind its name. Change it with them, and answers of the old ones are no longer
    /// recalled.
    pub revision: String,
    /// What a million tokens of it cost; as the section `cache` says if left out.
    pub prices: Option<Prices>,
    /// Adapters on top of it that the workers have loaded, by the names they have there.
    pub loras: Vec<String>,
    /// Serve it in this process instead of from a pool. At most one model can be.
    pub engine: Option<EngineModel>,
}

impl Model {
    /// What the workers call it.
    pub fn served_as(&self) -> &str {
        self.served_as.as_deref().unwrap_or(&self.name)
    }

    /// Every name that clients may use for it, adapters not included.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let name = Some(&*self.name).filter(|name| !name.is_empty());
        name.into_iter()
            .chain(self.aliases.iter().map(String::as_str))
    }
}

/// A model in this process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EngineModel {
    /// A GGUF file or a Hugging Face folder; the bundled model if left out.
    pub path: Option<PathBuf>,
    /// Where KV blocks lie beyond the memory it computes from, near to far: `memory:4GiB`, `disk:PATH`, `dir:PATH` or
    /// `redis://host:6379` to share them with other instances, each with `?size=` for its bound.
    pub kv_store: Vec<String>,
}
