//! Where log lines go: to standard error, so that standard output stays with what people read.

mod batched;

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;
use batched::Batched;

/// What is logged unless `RUST_LOG` says otherwise.
const DEFAULT_FILTER: &str = "info";

/// Keeps the log going; dropping it writes what is left.
#[must_use = "lines that were not written yet are written when this is dropped"]
pub(crate) struct Log(Batched);

pub(crate) fn start(format: LogFormat) -> Log {
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let batched = Batched::to(std::io::stderr());
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(batched.clone());
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
    Log(batched)
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.flush();
    }
}
