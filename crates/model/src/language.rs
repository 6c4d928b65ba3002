//! How a model reads and writes text: its tokenizer and its chat template, with or without its weights.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::config::GenerationConfig;
use crate::error::ModelError;
use crate::gguf::Gguf;
use crate::template::ChatTemplate;
use crate::tokenizer::{self, FolderTexts, Tokenizer};
use crate::weights::SourceFile;

/// Largest JSON or template file that is read whole. Real `tokenizer.json` files reach 35 MB.
const MAX_TEXT_FILE_BYTES: u64 = 256 << 20;

const TOKENIZER_FILE: &str = "tokenizer.json";

/// How a model reads and writes text.
pub struct Language {
    /// Text to tokens and back.
    pub tokenizer: Arc<Tokenizer>,
    /// Chats to text; some models have none.
    pub template: Option<ChatTemplate>,
}

impl Language {
    /// Reads it for a model that runs elsewhere: from a Hugging Face folder (weights and `config.json` are not
    /// needed), its `tokenizer.json`, or a GGUF file. `chat_template` stands in for the model's own.
    pub fn load(path: &Path, chat_template: Option<&str>) -> Result<Self, ModelError> {
        let generation = GenerationConfig::default();
        if path.is_dir() {
            return Self::from_folder(path, &generation, chat_template);
        }
        let folder = path.parent().filter(|_| path.ends_with(TOKENIZER_FILE));
        if let Some(folder) = folder {
            return Self::from_folder(folder, &generation, chat_template);
        }
        let file = SourceFile::open(path)?;
        Self::from_gguf(&Gguf::parse(&file.name, &file.bytes)?, chat_template)
    }

    pub(crate) fn from_gguf(
        gguf: &Gguf<'_>,
        chat_template: Option<&str>,
    ) -> Result<Self, ModelError> {
        let tokenizer = Tokenizer::from_gguf(gguf)?;
        let template = gguf_template(gguf, &tokenizer, chat_template)?;
        Ok(Self {
            tokenizer: Arc::new(tokenizer),
            template,
        })
    }

    pub(crate) fn from_folder(
        folder: &Path,
        generation: &GenerationConfig,
        chat_template: Option<&str>,
    ) -> Result<Self, ModelError> {
        let config = optional_json(&folder.join("tokenizer_config.json"))?;
        let texts = FolderTexts::read(&config);
        let path = folder.join(TOKENIZER_FILE);
        let label = path.display().to_string();
        let tokenizer =
            tokenizer::from_huggingface(&label, &read_file(&path)?, &texts, generation)?;
        let template = folder_template(folder, &config, &texts, chat_template)?;
        Ok(Self {
            tokenizer: Arc::new(tokenizer),
            template,
        })
    }
}

fn gguf_template(
    gguf: &Gguf<'_>,
    tokenizer: &Tokenizer,
    chat_template: Option<&str>,
) -> Result<Option<ChatTemplate>, ModelError> {
    let text = |id: Option<u32>| id.map(|id| tokenizer.token_text(id)).unwrap_or_default();
    let bos = text(tokenizer.bos());
    let eos = text(tokenizer.eos().first().copied());
    if let Some(source) = chat_template {
        return ChatTemplate::new(source, &bos, &eos).map(Some);
    }
    let Some(default) = gguf.text("tokenizer.chat_template")? else {
        return Ok(None);
    };
    let tool_use = gguf.text("tokenizer.chat_template.tool_use")?;
    let named = tool_use.map(|source| ("tool_use", source));
    ChatTemplate::named(named.into_iter().chain([("default", default)]), &bos, &eos).map(Some)
}

/// A folder's template: a file of its own in newer folders, else part of `tokenizer_config.json`, as a
/// text or as a list of named ones.
fn folder_template(
    folder: &Path,
    tokenizer_config: &Value,
    texts: &FolderTexts,
    chat_template: Option<&str>,
) -> Result<Option<ChatTemplate>, ModelError> {
    let bos = texts.bos.as_deref().unwrap_or_default();
    let eos = texts.eos.as_deref().unwrap_or_default();
    if let Some(source) = chat_template {
        return ChatTemplate::new(source, bos, eos).map(Some);
    }
    let file = folder.join("chat_template.jinja");
    if file.is_file() {
        let bytes = read_file(&file)?;
        return ChatTemplate::new(&String::from_utf8_lossy(&bytes), bos, eos).map(Some);
    }
    match tokenizer_config.get("chat_template") {
        Some(Value::String(source)) => ChatTemplate::new(source, bos, eos).map(Some),
        Some(Value::Array(named)) => {
            let named = named.iter().filter_map(|entry| {
                Some((
                    entry.get("name")?.as_str()?,
                    entry.get("template")?.as_str()?,
                ))
            });
            ChatTemplate::named(named, bos, eos).map(Some)
        }
        _ => Ok(None),
    }
}

fn optional_json(path: &Path) -> Result<Value, ModelError> {
    if !path.is_file() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&read_file(path)?)
        .map_err(|error| ModelError::malformed(&path.display().to_string(), error.to_string()))
}

pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, ModelError> {
    let error = |source| ModelError::Read {
        path: path.to_owned(),
        source,
    };
    let len = std::fs::metadata(path).map_err(error)?.len();
    if len > MAX_TEXT_FILE_BYTES {
        let reason = format!("has {len} bytes, more than {MAX_TEXT_FILE_BYTES}");
        return Err(ModelError::malformed(&path.display().to_string(), reason));
    }
    std::fs::read(path).map_err(error)
}
