//! Workers that leak or are stuck are drained and restarted by a hook.

use fleet::recycle::RecycleConfig;

/// When and how workers are restarted.
#[derive(Debug, Clone, PartialEq)]
pub struct RecyclingConfig {
    /// When.
    pub rules: RecycleConfig,
    /// How.
    pub hook: Hook,
}

/// What restarts a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hook {
    /// `POST` to this address, with a JSON object that names `pool`, `worker`, `url` and `reason`.
    Http(http::Uri),
    /// This program with these arguments; the same names stand in `FORESPEAK_POOL`, `FORESPEAK_WORKER`,
    /// `FORESPEAK_URL` and `FORESPEAK_REASON`.
    Command(Vec<String>),
}
