//! What `forespeak bench` can be told.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::text::Style;

/// Where load goes, what it is, and where the figures go.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Where requests go, without `/v1`
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// The model asked for [default: the first that /v1/models lists]
    #[arg(long)]
    pub model: Option<String>,
    /// Sent as a bearer token
    #[arg(long, env = "FORESPEAK_API_KEY", hide_env_values = true)]
    pub api_key: Option<String>,
    /// What is asked
    #[arg(long, value_enum, default_value_t, help_heading = "Workload")]
    pub workload: Kind,
    /// How many requests; for a trace, how many from its beginning
    #[arg(long, help_heading = "Workload")]
    pub requests: Option<usize>,
    /// Tokens of a prompt (random)
    #[arg(long, default_value_t = 1024, help_heading = "Workload")]
    pub prompt_tokens: u64,
    /// Tokens of it that are equal within a group (random)
    #[arg(long, default_value_t = 0, help_heading = "Workload")]
    pub shared_tokens: u64,
    /// How many groups (random)
    #[arg(long, default_value_t = 8, help_heading = "Workload")]
    pub groups: u64,
    /// Tokens of an answer; chats and documents take half to one and a half of it
    #[arg(long, default_value_t = 128, help_heading = "Workload")]
    pub output_tokens: u64,
    /// What texts are made of; a word of prose is somewhat more than a token
    #[arg(long, value_enum, default_value_t, help_heading = "Workload")]
    pub text: Style,
    /// Different documents (chats, documents)
    #[arg(long, default_value_t = 80, help_heading = "Workload")]
    pub documents: u64,
    /// Tokens of a document (chats, documents)
    #[arg(long, default_value_t = 12_000, help_heading = "Workload")]
    pub document_tokens: u64,
    /// Tokens of a question, half to one and a half of it (chats, documents)
    #[arg(long, default_value_t = 200, help_heading = "Workload")]
    pub question_tokens: u64,
    /// Turns of a chat (chats)
    #[arg(long, default_value_t = 6, help_heading = "Workload")]
    pub turns: u64,
    /// Mean seconds between an answer and the next question (chats)
    #[arg(long, default_value_t = 1.0, help_heading = "Workload")]
    pub think: f64,
    /// Seconds in which new chats begin (chats, documents)
    #[arg(long, default_value_t = 60.0, help_heading = "Workload")]
    pub duration: f64,
    /// A trace: one object a line with timestamp, input_length, output_length, hash_ids (mooncake)
    #[arg(long, value_name = "FILE", help_heading = "Workload")]
    pub trace: Option<PathBuf>,
    /// How much faster than recorded (mooncake)
    #[arg(long, default_value_t = 1.0, help_heading = "Workload")]
    pub speed: f64,
    /// Tokens that one token stands for (mooncake)
    #[arg(long, default_value_t = 1, help_heading = "Workload")]
    pub scale: u64,
    /// Of everything random
    #[arg(long, default_value_t = 1, help_heading = "Workload")]
    pub seed: u64,
    /// Requests (or chats) that begin per second; without it a closed loop
    #[arg(long, help_heading = "Arrivals")]
    pub rate: Option<f64>,
    /// How even arrivals are: 1 is a Poisson process, inf a constant rate, less than 1 bursts
    #[arg(long, default_value_t = 1.0, help_heading = "Arrivals")]
    pub burstiness: f64,
    /// The most requests (or chats) at once [default: 8 in a closed loop, else no bound]
    #[arg(long, help_heading = "Arrivals")]
    pub concurrency: Option<usize>,
    /// Share of streamed answers that the client leaves in the middle
    #[arg(long, default_value_t = 0.0, help_heading = "Requests")]
    pub cancel_share: f64,
    /// Answers in one piece
    #[arg(long, help_heading = "Requests")]
    pub no_stream: bool,
    /// Prompts as token ids over /v1/completions (random, mooncake)
    #[arg(long, help_heading = "Requests")]
    pub token_ids: bool,
    /// HTTP/2 without TLS, a hundred requests on a connection
    #[arg(long, help_heading = "Requests")]
    pub http2: bool,
    /// Let answers end where the model ends them
    #[arg(long, help_heading = "Requests")]
    pub stop_at_eos: bool,
    /// Seconds to wait for an answer
    #[arg(long, default_value_t = 600.0, help_heading = "Requests")]
    pub timeout: f64,
    /// Requests before the first that counts
    #[arg(long, default_value_t = 0, help_heading = "Run")]
    pub warm_up: usize,
    /// Seconds to wait until the server answers
    #[arg(long, default_value_t = 30, help_heading = "Run")]
    pub ready_timeout: u64,
    /// A file for the figures as one JSON object
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// A file for one JSON object per request
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub jsonl: Option<PathBuf>,
}

/// Kinds of workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Prompts of one size, of which groups share their beginning
    #[default]
    Random,
    /// Growing chats over shared documents
    Chats,
    /// One question about one of several documents
    Documents,
    /// A recorded trace of Mooncake's form
    Mooncake,
}

/// Requests at once in a closed loop of which nothing else was said.
const CLOSED_LOOP: usize = 8;

impl Options {
    /// The most at once.
    pub(crate) fn at_once(&self) -> Option<usize> {
        match (self.concurrency, self.rate, self.workload) {
            (Some(most), _, _) => Some(most.max(1)),
            (None, Some(_), _) | (None, None, Kind::Mooncake) => None,
            (None, None, _) => Some(CLOSED_LOOP),
        }
    }

    pub(crate) fn seconds(value: f64) -> Duration {
        Duration::try_from_secs_f64(value).unwrap_or_default()
    }
}
