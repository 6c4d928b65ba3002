//! Why a command could not be carried out.

use std::path::PathBuf;

use crate::sizing::SizingError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(
        "this binary has no model inside; name one with --model (a GGUF file or a Hugging Face folder)"
    )]
    NoModel,
    #[error("--drafter model needs a draft model; name one with --draft, or take --drafter ngram")]
    NoDraft,
    #[error(
        "the draft model's tokenizer is not the model's own: {difference}; take a draft model of the \
         same family"
    )]
    OtherTokenizer { difference: String },
    #[error(transparent)]
    Model(#[from] model::ModelError),
    #[error("cannot read the chat template {}: {source}", path.display())]
    ReadTemplate {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("--max-model-len {asked} is more than the model's {limit} tokens")]
    TooLong { asked: usize, limit: usize },
    #[error(transparent)]
    Sizing(#[from] SizingError),
    #[error(transparent)]
    Engine(#[from] engine::StartError),
    #[error(transparent)]
    Gateway(#[from] gateway::GatewayError),
    #[error("the system refused: {0}")]
    System(#[from] std::io::Error),
}
