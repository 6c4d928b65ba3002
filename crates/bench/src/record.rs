//! What came of one request.

use std::time::Duration;

use serde::Serialize;

/// How it ended: exactly one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A complete answer.
    Ok,
    /// We left on purpose.
    Cancelled,
    /// 429.
    TooManyRequests,
    /// 503.
    Unavailable,
    /// Another 4xx.
    ClientError,
    /// Another 5xx.
    ServerError,
    /// No connection.
    Connect,
    /// The connection broke before the answer began.
    Reset,
    /// It broke after the answer had begun.
    Cut,
    /// The stream carried an error event.
    ErrorEvent,
    /// The stream ended without `[DONE]`, or the answer was not JSON.
    Incomplete,
    /// It took longer than we wait.
    Timeout,
}

/// The times and counts of one request.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// Its place in the workload.
    pub index: usize,
    /// Equal for requests of one chat.
    pub session: u64,
    /// When it was due, from the start of the run.
    #[serde(serialize_with = "seconds")]
    pub due: Duration,
    /// When it was sent.
    #[serde(serialize_with = "seconds")]
    pub sent: Duration,
    /// From sending to the first chunk with text.
    #[serde(serialize_with = "maybe_seconds")]
    pub ttft: Option<Duration>,
    /// From sending to the end.
    #[serde(serialize_with = "seconds")]
    pub end_to_end: Duration,
    /// Between chunks with text, in seconds.
    pub gaps: Vec<f32>,
    /// How it ended.
    pub outcome: Outcome,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// As the server counted them.
    pub prompt_tokens: u64,
    /// As the server counted them; by chunks if it did not.
    pub output_tokens: u64,
    /// Prompt tokens from its cache.
    pub cached_tokens: u64,
    /// What the server said when it failed, shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Record {
    /// How late it was sent.
    pub fn lateness(&self) -> Duration {
        self.sent.saturating_sub(self.due)
    }

    /// Time per token after the first.
    pub fn time_per_token(&self) -> Option<Duration> {
        let rest = u32::try_from(self.output_tokens.checked_sub(1)?).ok()?;
        self.end_to_end.saturating_sub(self.ttft?).checked_div(rest)
    }

    /// Chunks with text.
    pub fn chunks(&self) -> usize {
        self.gaps.len() + usize::from(self.ttft.is_some())
    }
}

fn seconds<S: serde::Serializer>(time: &Duration, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_f64(time.as_secs_f64())
}

fn maybe_seconds<S: serde::Serializer>(time: &Option<Duration>, out: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => out.serialize_f64(time.as_secs_f64()),
        None => out.serialize_none(),
    }
}
