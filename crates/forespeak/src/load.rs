//! From flags to models in memory, with a bar that shows how far it is.

use std::path::Path;
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};
use model::{Compute, LoadOptions, LoadedModel, Model, ModelSource, Progress, Quantize, Tier};
use speculation::Drafters;

use crate::bundled;
use crate::cli::{CpuTier, ModelOptions, QuantizeTo, ServeOptions};
use crate::commands::CommandError;
use crate::machine::physical_cores;

/// Up to this size most of a draft model's products are computed on one thread: its matrices lie in a core's caches,
/// and handing parts of them to others takes longer than computing them.
const SMALL_DRAFT: u64 = 8 << 20;

/// A model, the one that drafts for it, and what they compute with.
pub(crate) struct Loaded {
    pub(crate) model: LoadedModel,
    pub(crate) draft: Option<LoadedModel>,
    /// The name it is served under unless another was given.
    pub(crate) name: String,
    pub(crate) compute: Arc<Compute>,
}

pub(crate) fn load(options: &ServeOptions) -> Result<Loaded, CommandError> {
    let (source, name) = source(&options.model)?;
    let draft_source = draft_source(options)?;
    let chat_template = options
        .model
        .chat_template
        .as_deref()
        .map(read_template)
        .transpose()?;
    let tier = options.engine.tier.map_or_else(Tier::detect, tier);
    let threads = options.engine.threads.unwrap_or_else(physical_cores);
    let compute = Arc::new(Compute::new(tier, threads));

    let bar = progress_bar();
    let read = |source: &ModelSource, to: Option<QuantizeTo>, chat_template, compute: &Arc<_>| {
        let options = LoadOptions {
            quantize: to.map(quantize),
            chat_template,
            compute: Arc::clone(compute),
            progress: &|progress: Progress<'_>| {
                bar.set_length(progress.total as u64);
                bar.set_position(progress.done as u64);
            },
        };
        Model::load(source, &options)
    };
    let to = options.model.quantize;
    let model = read(&source, to, chat_template, &compute)?;
    let draft = draft_source
        .map(|source| {
            let small = bytes(&source) <= SMALL_DRAFT;
            let own = small.then(|| Arc::new(compute.for_small_model()));
            let to = options.speculation.draft_quantize.or(to);
            read(&source, to, None, own.as_ref().unwrap_or(&compute))
        })
        .transpose()?;
    bar.finish_and_clear();
    let difference = draft
        .as_ref()
        .and_then(|draft| model.tokenizer.first_difference(&draft.tokenizer));
    if let Some(difference) = difference {
        return Err(CommandError::OtherTokenizer { difference });
    }
    Ok(Loaded {
        model,
        draft,
        name,
        compute,
    })
}

/// How much there is to read; unknown is much.
fn bytes(source: &ModelSource) -> u64 {
    match source {
        ModelSource::Bytes { bytes, .. } => bytes.len() as u64,
        ModelSource::Path(path) if path.is_file() => {
            path.metadata().map_or(u64::MAX, |found| found.len())
        }
        ModelSource::Path(_) => u64::MAX,
    }
}

/// The draft model, if there is one. Also where nobody asks it at first: an operator may want it while the engine runs,
/// and should hear of a wrong one now.
fn draft_source(options: &ServeOptions) -> Result<Option<ModelSource>, CommandError> {
    let speculation = &options.speculation;
    let own = speculation.draft.clone().map(ModelSource::Path);
    let bundled = || {
        let pair = bundled::pair().filter(|_| options.model.model.is_none())?;
        Some(ModelSource::Bytes {
            name: bundled::DRAFT_NAME,
            bytes: pair.draft,
        })
    };
    match own.or_else(bundled) {
        None if speculation.drafter == Drafters::Model => Err(CommandError::NoDraft),
        source => Ok(source),
    }
}

fn source(options: &ModelOptions) -> Result<(ModelSource, String), CommandError> {
    match &options.model {
        Some(path) => Ok((ModelSource::Path(path.clone()), name_of(path))),
        None => {
            let bytes = bundled::pair().ok_or(CommandError::NoModel)?.target;
            let name = bundled::NAME;
            Ok((ModelSource::Bytes { name, bytes }, name.to_owned()))
        }
    }
}

/// The folder's name, or the file's without its ending.
fn name_of(path: &Path) -> String {
    let name = if path.extension().is_some_and(|ending| ending == "gguf") {
        path.file_stem()
    } else {
        path.file_name()
    };
    name.map_or_else(
        || path.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn read_template(path: &Path) -> Result<String, CommandError> {
    std::fs::read_to_string(path).map_err(|source| CommandError::ReadTemplate {
        path: path.to_owned(),
        source,
    })
}

fn tier(tier: CpuTier) -> Tier {
    match tier {
        CpuTier::Scalar => Tier::Scalar,
        CpuTier::Avx2 => Tier::Avx2,
        CpuTier::Avx512 => Tier::Avx512,
    }
}

fn quantize(to: QuantizeTo) -> Quantize {
    match to {
        QuantizeTo::Q8_0 => Quantize::Q8_0,
        QuantizeTo::Q4K => Quantize::Q4K,
    }
}

/// Drawn on standard error, and only if that is a terminal.
fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template(
        "loading {bar:32} {bytes}/{total_bytes} {bytes_per_sec} {eta} left",
    ) {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn draft_of(arguments: &str) -> Result<Option<ModelSource>, CommandError> {
        let arguments = ["forespeak", "serve"]
            .into_iter()
            .chain(arguments.split_whitespace());
        let Command::Serve(options) = Cli::try_parse_from(arguments).unwrap().command else {
            panic!("not serve");
        };
        draft_source(&options)
    }

    #[test]
    fn a_draft_is_loaded_whoever_drafts_at_first() {
        for drafter in ["auto", "model", "ngram", "off"] {
            let named = draft_of(&format!("--model m --draft d --drafter {drafter}")).unwrap();
            assert!(
                matches!(&named, Some(ModelSource::Path(path)) if path == Path::new("d")),
                "{drafter}: {named:?}"
            );
        }
        for drafter in ["auto", "ngram", "off"] {
            let bundled = draft_of(&format!("--drafter {drafter}")).unwrap();
            assert_eq!(bundled.is_some(), bundled::pair().is_some(), "{drafter}");
            let other = draft_of(&format!("--model m --drafter {drafter}")).unwrap();
            assert!(other.is_none(), "{drafter}: {other:?}");
        }
        let wanted = draft_of("--model m --drafter model");
        assert!(matches!(wanted, Err(CommandError::NoDraft)), "{wanted:?}");
    }

    #[test]
    fn a_model_is_named_after_its_file_or_folder() {
        assert_eq!(name_of(Path::new("a/llama-1b.Q8_0.gguf")), "llama-1b.Q8_0");
        assert_eq!(name_of(Path::new("a/Qwen3-0.6B")), "Qwen3-0.6B");
        assert_eq!(name_of(Path::new("a/Qwen3-0.6B/")), "Qwen3-0.6B");
    }
}
