//! The models that are measured.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forespeak_engine::{CpuExecutor, Executor, Executors};
use model::{
    Compute, KvType, LoadOptions, LoadedModel, Model, ModelSource, Specials, Tier, Tokenizer,
};

use crate::Failure;
use crate::options::Options;

/// Blocks of an engine: room for 16 streams of 900 tokens.
pub(crate) const BLOCKS: usize = 1024;

pub(crate) struct Pair {
    /// In tables.
    pub(crate) name: String,
    pub(crate) target: Arc<Model>,
    pub(crate) draft: Option<Arc<Model>>,
    pub(crate) tokenizer: Arc<Tokenizer>,
}

impl Pair {
    pub(crate) fn load(options: &Options) -> Result<Self, Failure> {
        let compute = Arc::new(Compute::new(Tier::detect(), options.threads));
        let path = options
            .target
            .clone()
            .unwrap_or_else(|| bundled("forespeak-target.gguf"));
        let (target, tokenizer, _) = load(&path, &compute)?.into_parts();
        let of_draft = Arc::new(compute.for_small_model());
        let draft = options
            .draft
            .clone()
            .unwrap_or_else(|| bundled("forespeak-draft.gguf"));
        let draft = options
            .has_draft
            .then(|| load(&draft, &of_draft))
            .transpose()?;
        let name = path.file_stem().unwrap_or_default();
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            target: Arc::new(target),
            draft: draft.map(|draft| Arc::new(draft.model)),
            tokenizer,
        })
    }

    pub(crate) fn executors(&self) -> Result<Executors, Failure> {
        let executor = |model: &Arc<Model>| -> Result<Box<dyn Executor>, Failure> {
            let executor = CpuExecutor::new(Arc::clone(model), BLOCKS, KvType::F16)?;
            // What the first touch of memory costs is not what is compared here.
            Ok(Box::new(executor.with_committed(BLOCKS)))
        };
        Ok(Executors {
            target: executor(&self.target)?,
            draft: self.draft.as_ref().map(executor).transpose()?,
        })
    }

    pub(crate) fn encode(&self, text: &str) -> Result<Vec<u32>, Failure> {
        Ok(self.tokenizer.encode(text, Specials::PARSE_AND_ADD)?)
    }
}

/// A file that travels with the repository.
pub(crate) fn bundled(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models")).join(name)
}

fn load(path: &Path, compute: &Arc<Compute>) -> Result<LoadedModel, Failure> {
    let options = LoadOptions {
        quantize: None,
        chat_template: None,
        compute: Arc::clone(compute),
        progress: &|_| {},
    };
    Ok(Model::load(&ModelSource::Path(path.into()), &options)?)
}
