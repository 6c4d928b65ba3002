//! What can go wrong in the fleet, for whoever configures it.

/// Why a worker could not be taken in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    /// Not an address we can use.
    #[error("worker address {url:?} is not usable: {why}")]
    Url {
        /// As given.
        url: String,
        /// What to change.
        why: &'static str,
    },
    /// Not an endpoint we can use.
    #[error(
        "kv event endpoint {endpoint:?} is not usable: write tcp://host:port, {{host}} stands for the worker's host"
    )]
    Endpoint {
        /// As given.
        endpoint: String,
    },
    /// Too many ranks.
    #[error(
        "{ranks} data-parallel ranks are over the limit of {limit}, or their ports run over 65535"
    )]
    Ranks {
        /// As given.
        ranks: u32,
        /// The limit.
        limit: u32,
    },
    /// Too many workers.
    #[error("the fleet already has {limit} workers: remove some first")]
    TooManyWorkers {
        /// The limit.
        limit: usize,
    },
    /// Two workers of one name.
    #[error("two workers are called {name:?}: give each a name of its own")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// No such worker.
    #[error("there is no worker called {name:?}")]
    UnknownWorker {
        /// The name asked for.
        name: String,
    },
    /// The file of workers cannot be read.
    #[error("the worker file {path:?} cannot be used, the workers stay as they are: {why}")]
    File {
        /// Its path.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// A DNS name cannot be resolved.
    #[error("{name:?} cannot be resolved, its workers stay as they are: {why}")]
    Dns {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
}
