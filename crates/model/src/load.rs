//! From a path to a model that answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernels::{Compute, MappedFile, trim_heap};
use serde_json::Value;

use crate::config::{self, GenerationConfig, ModelConfig};
use crate::error::ModelError;
use crate::forward::Model;
use crate::gguf::Gguf;
use crate::template::ChatTemplate;
use crate::tokenizer::{self, FolderTexts, Tokenizer};
use crate::weights::{Checkpoint, Progress, Quantize, SourceFile, Weights};

/// Largest JSON or template file that is read whole. Real `tokenizer.json` files reach 35 MB.
const MAX_TEXT_FILE_BYTES: u64 = 256 << 20;

/// Where a model comes from.
#[derive(Debug, Clone)]
pub enum ModelSource {
    /// A GGUF file or a Hugging Face folder.
    Path(PathBuf),
    /// A GGUF file that is part of the program.
    Bytes {
        /// Its name in errors.
        name: &'static str,
        /// Its bytes.
        bytes: &'static [u8],
    },
}

/// How to load a model.
pub struct LoadOptions<'a> {
    /// Make float weights smaller.
    pub quantize: Option<Quantize>,
    /// A template in place of the model's own.
    pub chat_template: Option<String>,
    /// Where the arithmetic runs.
    pub compute: Arc<Compute>,
    /// Told after every tensor.
    pub progress: &'a dyn Fn(Progress<'_>),
}

/// Everything that a model's files gave.
pub struct LoadedModel {
    /// The arithmetic.
    pub model: Model,
    /// Text to tokens and back.
    pub tokenizer: Arc<Tokenizer>,
    /// What the model calls itself, if it does.
    pub name: Option<String>,
    template: Option<ChatTemplate>,
}

impl LoadedModel {
    /// The model's shape.
    pub fn config(&self) -> &ModelConfig {
        self.model.config()
    }

    /// The chat template, or the error to answer chat requests with.
    pub fn template(&self) -> Result<&ChatTemplate, ModelError> {
        self.template.as_ref().ok_or(ModelError::NoTemplate)
    }

    /// The parts, for callers that share them between threads.
    pub fn into_parts(self) -> (Model, Arc<Tokenizer>, Option<ChatTemplate>) {
        (self.model, self.tokenizer, self.template)
    }
}

impl Model {
    /// Reads a model's files, checks them and packs the weights.
    pub fn load(
        source: &ModelSource,
        options: &LoadOptions<'_>,
    ) -> Result<LoadedModel, ModelError> {
        let loaded = match source {
            ModelSource::Path(path) if path.is_dir() => load_folder(path, options),
            ModelSource::Path(path) => load_gguf(SourceFile::open(path)?, options),
            ModelSource::Bytes { name, bytes } => {
                let file = SourceFile {
                    name: (*name).to_owned(),
                    bytes: MappedFile::from_static(bytes),
                };
                load_gguf(file, options)
            }
        };
        trim_heap();
        loaded
    }
}

fn load_gguf(file: SourceFile, options: &LoadOptions<'_>) -> Result<LoadedModel, ModelError> {
    let file = Arc::new(file);
    let gguf = Gguf::parse(&file.name, &file.bytes)?;
    let config = config::from_gguf(&gguf)?;
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let template = gguf_template(&gguf, &tokenizer, options)?;
    let name = gguf.text("general.name")?.map(str::to_owned);
    let checkpoint = Checkpoint::from_gguf(&file, &gguf, &config);
    let loaded = finish(
        &file.name,
        &checkpoint,
        config,
        tokenizer,
        template,
        name,
        options,
    );
    file.bytes.forget(0..file.bytes.len());
    loaded
}

fn load_folder(folder: &Path, options: &LoadOptions<'_>) -> Result<LoadedModel, ModelError> {
    let required = |name: &str| {
        let path = folder.join(name);
        Ok::<_, ModelError>((path.display().to_string(), read_file(&path)?))
    };
    let (config_name, config_bytes) = required("config.json")?;
    let (config, mut generation) = config::from_huggingface(&config_name, &config_bytes)?;
    let generation_path = folder.join("generation_config.json");
    if generation_path.is_file() {
        let label = generation_path.display().to_string();
        generation.merge(GenerationConfig::read(
            &label,
            &read_file(&generation_path)?,
        )?);
    }
    let tokenizer_config = optional_json(&folder.join("tokenizer_config.json"))?;
    let texts = FolderTexts::read(&tokenizer_config);
    let (tokenizer_name, tokenizer_bytes) = required("tokenizer.json")?;
    let tokenizer =
        tokenizer::from_huggingface(&tokenizer_name, &tokenizer_bytes, &texts, &generation)?;
    drop(tokenizer_bytes);
    let template = folder_template(folder, &tokenizer_config, &texts, options)?;
    let checkpoint = Checkpoint::from_folder(folder)?;
    let label = folder.display().to_string();
    let name = folder
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    finish(
        &label,
        &checkpoint,
        config,
        tokenizer,
        template,
        name,
        options,
    )
}

fn finish(
    label: &str,
    checkpoint: &Checkpoint,
    config: ModelConfig,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    name: Option<String>,
    options: &LoadOptions<'_>,
) -> Result<LoadedModel, ModelError> {
    if tokenizer.vocab_size() > config.vocab_size {
        let (tokens, rows) = (tokenizer.vocab_size(), config.vocab_size);
        let reason =
            format!("the tokenizer knows {tokens} tokens, but the embedding has {rows} rows");
        return Err(ModelError::malformed(label, reason));
    }
    let compute = Arc::clone(&options.compute);
    let weights = Weights::pack(
        checkpoint,
        &config,
        &compute,
        options.quantize,
        options.progress,
    )?;
    Ok(LoadedModel {
        model: Model::new(config, compute, weights),
        tokenizer: Arc::new(tokenizer),
        name,
        template,
    })
}

fn gguf_template(
    gguf: &Gguf<'_>,
    tokenizer: &Tokenizer,
    options: &LoadOptions<'_>,
) -> Result<Option<ChatTemplate>, ModelError> {
    let text = |id: Option<u32>| id.map(|id| tokenizer.token_text(id)).unwrap_or_default();
    let bos = text(tokenizer.bos());
    let eos = text(tokenizer.eos().first().copied());
    if let Some(source) = &options.chat_template {
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
    options: &LoadOptions<'_>,
) -> Result<Option<ChatTemplate>, ModelError> {
    let bos = texts.bos.as_deref().unwrap_or_default();
    let eos = texts.eos.as_deref().unwrap_or_default();
    if let Some(source) = &options.chat_template {
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

fn read_file(path: &Path) -> Result<Vec<u8>, ModelError> {
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
