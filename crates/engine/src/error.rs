//! Why the engine does not start, and why it does not take a request.

/// The engine cannot be started with these sizes.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A size is zero.
    #[error("{name} must be at least 1")]
    Zero {
        /// The setting.
        name: &'static str,
    },
    /// Not every running sequence would get its row in a step.
    #[error(
        "max_num_batched_tokens ({tokens}) must not be smaller than max_num_seqs ({seqs}): every \
         running sequence needs one row in each step"
    )]
    StepTooSmall {
        /// The configured rows of a step.
        tokens: usize,
        /// The configured sequences of a step.
        seqs: usize,
    },
    /// Scores and names of tokens do not belong together.
    #[error(
        "the tokenizer knows {tokenizer} tokens, but the model scores only {model}: they do not \
         belong together"
    )]
    VocabularyMismatch {
        /// Tokens in the tokenizer.
        tokenizer: usize,
        /// Scores in a row of logits.
        model: usize,
    },
    /// A block store behind nothing.
    #[error(
        "a KV store needs the prefix cache, and an executor that gives its blocks away; leave \
         --no-prefix-caching or the store out"
    )]
    NothingToShare,
    /// The operating system gave no thread.
    #[error("could not start the engine's thread: {0}")]
    Thread(std::io::Error),
}

/// The engine does not take this request. [`SubmitError::kind`] says whose fault it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// There is nothing to continue.
    #[error("the prompt is empty; send at least one token")]
    EmptyPrompt,
    /// No choice was asked for.
    #[error("n is 0; ask for at least one choice")]
    NoChoices,
    /// Prompt and answer do not fit the model.
    #[error(
        "this model's maximum context length is {limit} tokens, but the prompt has {prompt}; send a \
         prompt of at most {} tokens", limit.saturating_sub(1)
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// The model's length.
        limit: usize,
    },
    /// The prompt fits the model, but not the memory for keys and values.
    #[error(
        "the prompt has {prompt} tokens, but the KV cache holds {capacity}; send a shorter prompt or \
         start the server with a larger KV cache"
    )]
    PromptExceedsCache {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens in all blocks.
        capacity: usize,
    },
    /// A token id that the model does not know.
    #[error("token id {id} is outside the vocabulary of {vocab} tokens")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Number of tokens the model knows.
        vocab: usize,
    },
    /// The answer's format cannot be enforced.
    #[error("response_format cannot be used: {0}")]
    Format(String),
    /// A draft model is asked for where there is none.
    #[error(
        "speculative.drafter is model, but this server has no draft model; send auto, ngram or off, \
         or start it with --draft PATH"
    )]
    NoDraftModel,
    /// Too many requests wait already.
    #[error("{limit} requests wait already; retry later")]
    QueueFull {
        /// The configured `max_queued`.
        limit: usize,
    },
    /// The engine finishes what it has and takes no more.
    #[error("the server is shutting down; send the request to another one")]
    Draining,
}

/// What the caller of a refused request should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// Change the request (HTTP 400).
    Invalid,
    /// Send it again later (HTTP 429).
    Busy,
    /// Send it elsewhere (HTTP 503).
    Unavailable,
}

impl SubmitError {
    /// What the caller should do.
    pub fn kind(&self) -> RefusalKind {
        match self {
            Self::QueueFull { .. } => RefusalKind::Busy,
            Self::Draining => RefusalKind::Unavailable,
            Self::EmptyPrompt
            | Self::NoChoices
            | Self::PromptTooLong { .. }
            | Self::PromptExceedsCache { .. }
            | Self::UnknownToken { .. }
            | Self::Format(_)
            | Self::NoDraftModel => RefusalKind::Invalid,
        }
    }
}
