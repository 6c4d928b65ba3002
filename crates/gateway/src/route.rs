//! The paths of requests that are served by a model.

/// The paths of requests that are served by a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    Chat,
    Completions,
    Tokenize,
    Detokenize,
    /// One of [`RELAYED_PATHS`].
    Other(&'static str),
}

/// What workers offer beside the above. Nothing else of theirs can be reached: no `/metrics`, no switches
/// of their development mode, no raw generation.
pub(crate) const RELAYED_PATHS: [&str; 11] = [
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/v1/rerank",
    "/v2/rerank",
    "/rerank",
    "/v1/score",
    "/score",
    "/classify",
    "/pooling",
    "/v1/messages/count_tokens",
];

impl Route {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Route::Chat => "/v1/chat/completions",
            Route::Completions => "/v1/completions",
            Route::Tokenize => "/tokenize",
            Route::Detokenize => "/detokenize",
            Route::Other(path) => path,
        }
    }

    /// What the id of an answer begins with.
    pub(crate) fn id_prefix(self) -> &'static str {
        match self {
            Route::Chat => protocol::chat::ID_PREFIX,
            Route::Completions => protocol::completions::ID_PREFIX,
            Route::Tokenize | Route::Detokenize | Route::Other(_) => "req-",
        }
    }

    /// Whether it reads and writes text only, without the model.
    pub(crate) fn is_about_tokens(self) -> bool {
        matches!(self, Route::Tokenize | Route::Detokenize)
    }
}
