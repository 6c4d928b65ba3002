//! What can be wrong with what we are told.

use thiserror::Error;

/// Why an event, a name or a number was not taken in. Nothing here is fatal: after a bad event a worker is only
/// known less well, and its [`crate::index::WorkerKnowledge`] counts it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RoutingError {
    /// Hashes and tokens of a stored event do not belong together.
    #[error(
        "a stored event has {hashes} hashes but {tokens} tokens for blocks of {block_tokens}: check the event decoder"
    )]
    MalformedEvent {
        /// How many block hashes it carries.
        hashes: usize,
        /// How many token ids it carries.
        tokens: usize,
        /// The block size it claims.
        block_tokens: usize,
    },
    /// The engine's blocks are no multiple of the index's.
    #[error(
        "the worker caches in blocks of {engine} tokens, the index in blocks of {index}: set the index's block size to a divisor of the worker's"
    )]
    BlockSize {
        /// The worker's block size.
        engine: usize,
        /// The index's.
        index: usize,
    },
    /// The parent of a stored block was never announced, so its place in the prompt is unknown.
    #[error(
        "a stored block follows a block that was never announced: events were missed, replay them or clear the worker"
    )]
    Orphan,
    /// A worker announces more blocks than it can hold.
    #[error(
        "the worker announced {announced} blocks without removing any, more than {limit}: its events are not trusted and were dropped"
    )]
    TooManyBlocks {
        /// Engine blocks on the books.
        announced: usize,
        /// The most we keep.
        limit: usize,
    },
    /// A policy that does not exist.
    #[error(
        "there is no policy {name:?}: use round_robin, least_loaded, sticky, prefix, lmetric or fit"
    )]
    UnknownPolicy {
        /// What was asked for.
        name: String,
    },
    /// Nobody registered this worker with the index.
    #[error("the worker is not registered with the index: call set_worker first")]
    UnknownWorker,
}
