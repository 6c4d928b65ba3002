//! Why a command could not be carried out.

use std::path::PathBuf;

use crate::sizing::SizingError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(
        "this binary has no model inside; name one with --model (a GGUF file or a Hugging Face folder)"
    )]
    NoModel,
    #[error("`forespeak engine` is a worker itself; for a gateway use `forespeak serve`")]
    WorkersOfAWorker,
    #[error(
        "`forespeak engine` has no other gateways to tell anything; --shared is for `forespeak serve`"
    )]
    SharingOfAWorker,
    #[error(
        "--api-key-file is for one tenant, but the configuration file has tenants; move the keys to one of them"
    )]
    KeysOfTenants,
    #[error("{0}")]
    Config(config::Problems),
    #[error(
        "a cache that gateways share needs a secret, the same for all of them; set FORESPEAK_CACHE_SECRET, or \
         [cache] secret in the configuration"
    )]
    NoCacheSecret,
    #[error(
        "gateways that tell each other what they know need a secret, the same for all of them; set \
         FORESPEAK_SHARED_SECRET, or [shared] secret in the configuration"
    )]
    NoSharedSecret,
    #[error(transparent)]
    Cache(#[from] cache::AddressError),
    #[error(transparent)]
    Fleet(#[from] fleet::FleetError),
    #[error("{failures} checks failed")]
    Failed { failures: usize },
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
    KvStore(#[from] crate::kv_store::KvStoreError),
    #[error(transparent)]
    Engine(#[from] engine::StartError),
    #[error(transparent)]
    Gateway(#[from] gateway::GatewayError),
    #[error("cannot read the request {}: {source}", path.display())]
    ReadRequest {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the request cannot be explained: {why}")]
    Request { why: String },
    #[error("the system refused: {0}")]
    System(#[from] std::io::Error),
}
