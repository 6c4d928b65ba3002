//! A decision with what a reader of it wants to know: for the debug endpoint, the header and the log.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fleet::Worker;
use routing::Decision;
use serde::{Serialize, Serializer};

use super::books::Wanted;

/// Candidates in a header: the chosen one and those it was preferred to.
const SHOWN_IN_HEADER: usize = 4;

/// Where a request went, and why.
#[derive(Debug, Serialize)]
pub struct Chosen {
    /// When, in seconds since the Unix epoch.
    pub at: f64,
    /// Whose request it was.
    #[serde(serialize_with = "text")]
    pub tenant: Arc<str>,
    /// The worker's name.
    #[serde(serialize_with = "name")]
    pub worker: Arc<Worker>,
    /// The data-parallel rank that was named to it, if one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u16>,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Of these, expected in the worker's cache.
    pub predicted_cached_tokens: u64,
    /// How long it waited for room.
    #[serde(serialize_with = "seconds")]
    pub waited: Duration,
    /// The decision itself.
    #[serde(flatten)]
    pub decision: Decision,
}

impl Chosen {
    pub(super) fn new(
        (worker, rank): (&Arc<Worker>, Option<u16>),
        wanted: &Wanted,
        decision: Decision,
        predicted_cached_tokens: u64,
        waited: Duration,
    ) -> Self {
        let at = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0.0, |since| since.as_secs_f64());
        Self {
            at,
            tenant: Arc::clone(&wanted.tenant),
            worker: Arc::clone(worker),
            rank,
            prompt_tokens: wanted.prompt.tokens,
            predicted_cached_tokens,
            waited,
            decision,
        }
    }

    /// The decision in one line of printable ASCII, for a header:
    /// `fit a:8000 cached=1536/1600 scores=0:0.043,1:1.03 "it holds 96 % of the prompt …"`.
    pub fn header_value(&self) -> String {
        let Self {
            decision,
            prompt_tokens,
            predicted_cached_tokens: cached,
            ..
        } = self;
        let mut line = format!(
            "{} {} cached={cached}/{prompt_tokens} scores=",
            decision.policy,
            self.worker.name()
        );
        let shown = decision.candidates.iter().take(SHOWN_IN_HEADER);
        for (place, candidate) in shown.enumerate() {
            let comma = if place == 0 { "" } else { "," };
            // Writing to a string cannot fail.
            let _written = write!(line, "{comma}{}:{:.3}", candidate.worker.0, candidate.score);
        }
        let _written = write!(line, " \"{}\"", decision.reason);
        line.retain(|character| character == ' ' || character.is_ascii_graphic());
        line
    }
}

fn text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

fn name<S: Serializer>(worker: &Arc<Worker>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(worker.name())
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}
