//! What a worker is given and what it tells.

use std::time::Duration;

use serde::Serialize;

/// A request as a worker gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Whose events these will be.
    pub id: usize,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens it will generate.
    pub output_tokens: u64,
    /// Content ids of its full blocks: those of the prompt, then those the answer completes. Missing ones at the
    /// end are not cached.
    pub blocks: Vec<u32>,
}

/// Something a step brought about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerEvent {
    /// A waiting request began to run, for the first time or again after it was preempted.
    Admitted {
        /// Which.
        id: usize,
        /// Tokens of it that came from the cache this time.
        cached_tokens: u64,
    },
    /// A token of a request; the first one ends its prefill.
    Token {
        /// Whose.
        id: usize,
        /// Its place in the answer, from 1.
        nth: u64,
    },
    /// A request is complete.
    Finished {
        /// Which.
        id: usize,
        /// Prompt tokens that came from the cache.
        cached_tokens: u64,
    },
    /// A running request lost its blocks and waits again.
    Preempted {
        /// Which.
        id: usize,
    },
    /// A request that this worker can never hold.
    Refused {
        /// Which.
        id: usize,
    },
    /// Consecutive full blocks became findable.
    Stored {
        /// Whose.
        id: usize,
        /// The place of the first of them in that request.
        first: usize,
        /// The block before them.
        parent: Option<u64>,
        /// Their hashes.
        hashes: Vec<u64>,
        /// Their content ids.
        blocks: Vec<u32>,
    },
    /// Blocks were evicted.
    Removed {
        /// Their hashes.
        hashes: Vec<u64>,
    },
}

/// A step that has been planned: what will have happened when it ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// How long it takes.
    pub takes: Duration,
    /// In order.
    pub events: Vec<WorkerEvent>,
}

/// What a worker reports about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Gauges {
    /// Requests running.
    pub running: u32,
    /// Requests waiting.
    pub waiting: u32,
    /// Share of the KV cache in use by running requests.
    pub kv_usage: f64,
}

/// What a worker has counted since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Counters {
    /// Prompt tokens of admitted requests.
    pub prompt_tokens: u64,
    /// Of those, tokens found in the cache.
    pub cached_tokens: u64,
    /// Prompt tokens computed.
    pub prefill_tokens: u64,
    /// Time that took, the share of mixed steps due to prefill.
    pub prefill_time: Duration,
    /// Tokens generated.
    pub output_tokens: u64,
    /// Sum of the steps' durations over the decoding requests in them.
    pub inter_token_time: Duration,
    /// How many gaps that sum has.
    pub inter_token_count: u64,
    /// Requests preempted.
    pub preemptions: u64,
    /// Cached blocks lost to new ones.
    pub evictions: u64,
    /// Time spent in steps.
    pub busy: Duration,
}
