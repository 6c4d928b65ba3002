//! How a placed request ended.

use fleet::Fault;
use http::StatusCode;

/// How a placed request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The answer came to its end.
    Finished(Reported),
    /// The worker failed it.
    WorkerFault(Fault),
    /// The worker refused it, and the client is to blame.
    ClientFault(StatusCode),
    /// The client left before the end.
    ClientLeft,
    /// Its time was up.
    Deadline,
    /// It never left this process, which is held against no worker.
    NotSent,
}

/// What a worker's answer says about itself; nothing where it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reported {
    /// Tokens of the prompt.
    pub prompt_tokens: Option<u64>,
    /// Tokens of all answers.
    pub completion_tokens: Option<u64>,
    /// Prompt tokens that came out of the worker's cache.
    pub cached_tokens: Option<u64>,
}
