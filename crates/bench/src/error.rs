//! What can go wrong before the first request.

use std::path::PathBuf;

/// Why a run could not begin, or its figures not be written.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The URL is not one we can talk to.
    #[error("{0} is not an http:// address; say for example --url http://127.0.0.1:8080")]
    Url(String),
    /// Nothing answered in time.
    #[error(
        "{url} was not ready within {seconds} s ({reason}); is it running? --ready-timeout waits longer"
    )]
    NotReady {
        /// Where.
        url: String,
        /// How long.
        seconds: u64,
        /// What came last.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A trace could not be read.
    #[error(transparent)]
    Trace(#[from] simulator::SimulatorError),
    /// Something an option needs is missing.
    #[error("{0}")]
    Options(&'static str),
    /// The runtime could not start.
    #[error("the runtime could not start: {0}")]
    Runtime(#[from] std::io::Error),
}
