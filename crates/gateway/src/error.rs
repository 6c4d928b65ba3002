//! Why the gateway does not start. What it tells clients is [`protocol::ApiError`].

use std::net::SocketAddr;
use std::path::PathBuf;

/// The gateway cannot start.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}: {source}; choose another address with --listen")]
    Bind {
        /// Where we wanted to listen.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// There are no threads to be had.
    #[error("cannot start the threads that carry connections: {0}; set a smaller [server] threads")]
    Threads(#[source] std::io::Error),
    /// The admin API would be open to others.
    #[error(
        "the admin api does not listen on {address} without a key; set [admin] key, or listen on 127.0.0.1"
    )]
    OpenAdmin {
        /// Where it was to listen.
        address: SocketAddr,
    },
    /// The file of keys cannot be read.
    #[error("cannot read the api keys from {}: {source}", path.display())]
    ReadKeys {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file without keys would lock everyone out, or nobody: we do not guess.
    #[error("{} holds no api key; put one key on each line", path.display())]
    NoKeys {
        /// The file.
        path: PathBuf,
    },
    /// A tenant that cannot be told from another.
    #[error("tenant {name:?} is ambiguous: {why}; give each its own")]
    Tenant {
        /// The tenant.
        name: String,
        /// What it shares with another.
        why: &'static str,
    },
    /// A socket for KV events cannot be opened.
    #[error(
        "cannot publish kv events on {endpoint}: {reason}; use an address like tcp://127.0.0.1:5557"
    )]
    KvEvents {
        /// Where we wanted to publish.
        endpoint: String,
        /// Why not.
        reason: String,
    },
}
