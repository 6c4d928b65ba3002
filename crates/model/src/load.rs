//! From a path to a model that answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernels::{Compute, MappedFile, trim_heap};

use crate::config::{self, GenerationConfig, ModelConfig};
use crate::error::ModelError;
use crate::forward::Model;
use crate::gguf::Gguf;
use crate::language::{Language, read_file};
use crate::template::ChatTemplate;
use crate::tokenizer::Tokenizer;
use crate::weights::{Checkpoint, Progress, Quantize, SourceFile, Weights};

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
    let language = Language::from_gguf(&gguf, options.chat_template.as_deref())?;
    let name = gguf.text("general.name")?.map(str::to_owned);
    let checkpoint = Checkpoint::from_gguf(&file, &gguf, &config);
    let loaded = finish(&file.name, &checkpoint, config, language, name, options);
    file.bytes.forget(0..file.bytes.len());
    loaded
}

fn load_folder(folder: &Path, options: &LoadOptions<'_>) -> Result<LoadedModel, ModelError> {
    let config_path = folder.join("config.json");
    let config_name = config_path.display().to_string();
    let (config, mut generation) =
        config::from_huggingface(&config_name, &read_file(&config_path)?)?;
    let generation_path = folder.join("generation_config.json");
    if generation_path.is_file() {
        let label = generation_path.display().to_string();
        generation.merge(GenerationConfig::read(
            &label,
            &read_file(&generation_path)?,
        )?);
    }
    let language = Language::from_folder(folder, &generation, options.chat_template.as_deref())?;
    let checkpoint = Checkpoint::from_folder(folder)?;
    let label = folder.display().to_string();
    let name = folder
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    finish(&label, &checkpoint, config, language, name, options)
}

fn finish(
    label: &str,
    checkpoint: &Checkpoint,
    config: ModelConfig,
    language: Language,
    name: Option<String>,
    options: &LoadOptions<'_>,
) -> Result<LoadedModel, ModelError> {
    let Language {
        tokenizer,
        template,
    } = language;
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
        tokenizer,
        name,
        template,
    })
}
