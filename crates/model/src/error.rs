//! What can be wrong with a model's files, in words that name the file and what to do.

use std::path::PathBuf;

use crate::config::Architecture;

/// Why a model, its tokenizer or its chat template could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file could not be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is not what it claims to be.
    #[error("{file}: {reason}")]
    Malformed {
        /// The file.
        file: String,
        /// What is wrong, and where.
        reason: String,
    },
    /// A tensor is wrong.
    #[error("{file}: tensor `{tensor}` {reason}")]
    Tensor {
        /// The file.
        file: String,
        /// Its name in the file.
        tensor: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor that the config promises is not there.
    #[error("{file}: tensor `{tensor}` is missing; the download may be incomplete")]
    MissingTensor {
        /// The file or folder.
        file: String,
        /// Its name.
        tensor: String,
    },
    /// A model of another family.
    #[error(
        "{file}: architecture `{found}` is not supported; supported are {}",
        Architecture::names()
    )]
    UnknownArchitecture {
        /// The file.
        file: String,
        /// What it calls itself.
        found: String,
    },
    /// A setting of a known family that this engine cannot honour.
    #[error("{file}: {what} is not supported; {instead}")]
    Unsupported {
        /// The file.
        file: String,
        /// What was asked for.
        what: String,
        /// What would work.
        instead: String,
    },
    /// Text could not be turned into tokens.
    #[error("the tokenizer failed: {0}")]
    Encode(String),
    /// The chat template itself is broken.
    #[error("the chat template cannot be used: {0}; pass another one with --chat-template FILE")]
    Template(String),
    /// The chat template cannot render this conversation; the request must change.
    #[error("the model's chat template refuses this conversation: {0}")]
    Conversation(String),
    /// The model came without a chat template.
    #[error(
        "this model has no chat template: send the whole prompt to /v1/completions, or start the \
         server with --chat-template FILE"
    )]
    NoTemplate,
    /// A step was asked for that the model cannot do.
    #[error("the batch is not sound: {0}")]
    Batch(String),
    /// Weights could not be packed, or keys and values could not be given memory.
    #[error("{what}: {source}")]
    Memory {
        /// What was being made.
        what: String,
        /// Why it failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl ModelError {
    pub(crate) fn malformed(file: &str, reason: impl Into<String>) -> Self {
        Self::Malformed {
            file: file.to_owned(),
            reason: reason.into(),
        }
    }

    pub(crate) fn tensor(file: &str, tensor: &str, reason: impl Into<String>) -> Self {
        Self::Tensor {
            file: file.to_owned(),
            tensor: tensor.to_owned(),
            reason: reason.into(),
        }
    }

    pub(crate) fn unsupported(
        file: &str,
        what: impl Into<String>,
        instead: impl Into<String>,
    ) -> Self {
        Self::Unsupported {
            file: file.to_owned(),
            what: what.into(),
            instead: instead.into(),
        }
    }
}
