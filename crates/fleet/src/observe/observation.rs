//! What one scrape says about a worker.

use super::names::{Dialect, Quantity, labels};
use super::tally::Tally;
use crate::exposition::{BoundBroken, Labels, Samples};

/// The most draft positions counted apart. Deeper drafts are not in use anywhere: at an acceptance of
/// 0.9 the 64th token survives once in a thousand drafts.
pub const MAX_DRAFT_POSITIONS: usize = 64;

/// A worker at the moment of a scrape. `None` where its page does not say.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Whose names the page used.
    pub dialect: Dialect,
    /// Data-parallel ranks behind the worker, at least 1.
    pub ranks: u32,
    /// Share of the KV cache held by running requests, over all ranks.
    pub kv_usage: Option<f64>,
    /// The same in the fullest rank.
    pub kv_usage_fullest: Option<f64>,
    /// Requests being worked on.
    pub running: Option<u32>,
    /// Requests waiting.
    pub waiting: Option<u32>,
    /// What is known of the cache.
    pub cache: CacheFacts,
    /// Whether it is asleep.
    pub sleep: Option<SleepState>,
    /// Share of looked-up tokens found in the prefix cache, where the engine tells only the ratio.
    pub prefix_hit_rate: Option<f64>,
    /// Share of drafted tokens accepted, where the engine tells only the ratio.
    pub acceptance_rate: Option<f64>,
    /// What only ever grows.
    pub counters: Counters,
    /// When the worker's process started, in seconds since the Unix epoch.
    pub process_start: Option<f64>,
    /// Lines of the page that made no sense.
    pub malformed_lines: usize,
}

/// Facts about a worker's KV cache, summed over its ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheFacts {
    /// Tokens it holds.
    pub capacity_tokens: Option<u64>,
    /// Tokens in a block.
    pub block_size: Option<u32>,
    /// Whether prefixes are cached.
    pub prefix_caching: Option<bool>,
}

impl CacheFacts {
    /// Takes in vLLM's `cache_config_info` of one rank.
    pub(super) fn add(&mut self, found: &Labels<'_>) {
        let number = |label| found.get(label).and_then(|text| text.parse::<u64>().ok());
        let block_size = number(labels::BLOCK_SIZE);
        let blocks = number(labels::NUM_GPU_BLOCKS);
        let in_blocks = block_size
            .zip(blocks)
            .map(|(size, n)| size.saturating_mul(n));
        if let Some(tokens) = number(labels::KV_CACHE_SIZE_TOKENS).or(in_blocks) {
            let known = self.capacity_tokens.unwrap_or(0);
            self.capacity_tokens = Some(known.saturating_add(tokens));
        }
        if let Some(size) = block_size.and_then(|size| u32::try_from(size).ok()) {
            self.block_size = Some(size);
        }
        match found.get(labels::ENABLE_PREFIX_CACHING).as_deref() {
            Some("True" | "true") => self.prefix_caching = Some(true),
            Some("False" | "false") => self.prefix_caching = Some(false),
            _ => {}
        }
    }
}

/// How deep a worker sleeps, soundest last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SleepState {
    /// Serving.
    Awake,
    /// Weights in host memory.
    WeightsOffloaded,
    /// Weights gone.
    Discarded,
}

/// What only ever grows while the worker's process lives.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Counters {
    /// Tokens looked up in the prefix cache.
    pub prefix_queries: Option<f64>,
    /// Tokens found there.
    pub prefix_hits: Option<f64>,
    /// Requests thrown out for want of KV cache.
    pub preemptions: Option<f64>,
    /// Prompt tokens.
    pub prompt_tokens: Option<f64>,
    /// Generated tokens.
    pub generation_tokens: Option<f64>,
    /// Engine steps.
    pub steps: Option<f64>,
    /// Prompt tokens really computed.
    pub prefill_tokens: Option<f64>,
    /// Times to first token.
    pub ttft: Option<SumCount>,
    /// Times between tokens.
    pub itl: Option<SumCount>,
    /// Times in the engine's queue.
    pub queue: Option<SumCount>,
    /// Times in prefill.
    pub prefill: Option<SumCount>,
    /// Speculation, where it is on.
    pub spec: Option<SpecCounters>,
}

/// Sum and count of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SumCount {
    /// In seconds.
    pub sum: f64,
    /// How many were summed.
    pub count: f64,
}

/// Counters of speculative decoding.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SpecCounters {
    /// Drafts verified.
    pub drafts: f64,
    /// Tokens drafted.
    pub draft_tokens: f64,
    /// Tokens accepted.
    pub accepted_tokens: f64,
    /// Tokens accepted by position in the draft. As vLLM prints no drafts per position, dividing by
    /// `drafts` is right only while all drafts are that deep.
    pub accepted_at_position: Vec<f64>,
}

impl Observation {
    /// Reads a page; `None` when it has no metric of any engine we know.
    ///
    /// # Errors
    /// If the page breaks a bound of [`crate::exposition`].
    pub fn try_from_page(page: &str) -> Result<Option<Self>, BoundBroken> {
        let mut tally = Tally::default();
        let mut samples = Samples::new(page);
        for sample in samples.by_ref() {
            tally.add(&sample?);
        }
        let malformed_lines = samples.malformed_lines();
        Ok(tally
            .dialect
            .map(|dialect| Self::from_tally(tally, dialect, malformed_lines)))
    }

    /// Like [`Self::try_from_page`], for callers to whom a broken page is as good as none.
    pub fn from_page(page: &str) -> Option<Self> {
        Self::try_from_page(page).ok().flatten()
    }

    /// Tokens in use, where usage and capacity are known.
    pub fn kv_used_tokens(&self) -> Option<u64> {
        let capacity = self.cache.capacity_tokens? as f64;
        Some((self.kv_usage? * capacity).round() as u64)
    }

    fn from_tally(tally: Tally, dialect: Dialect, malformed_lines: usize) -> Self {
        let ratio = |value: f64| value.clamp(0.0, 1.0);
        let count = |value: f64| value.round().min(f64::from(u32::MAX)) as u32;
        let waiting = tally.sum(Quantity::Waiting);
        let swapped = tally.sum(Quantity::Swapped).unwrap_or(0.0);
        let mut cache = tally.cache;
        if let Some(tokens) = tally.sum(Quantity::CapacityTokens) {
            cache.capacity_tokens = Some(tokens as u64);
        }
        if let Some(size) = tally.max(Quantity::BlockSize) {
            cache.block_size = Some(count(size));
        }
        Self {
            dialect,
            ranks: tally.ranks(Quantity::Running).max(1),
            kv_usage: tally.mean(Quantity::KvUsage).map(ratio),
            kv_usage_fullest: tally.max(Quantity::KvUsage).map(ratio),
            running: tally.sum(Quantity::Running).map(count),
            waiting: waiting.map(|waiting| count(waiting + swapped)),
            cache,
            sleep: tally.sleep,
            prefix_hit_rate: tally.mean(Quantity::PrefixHitRate).map(ratio),
            acceptance_rate: tally.mean(Quantity::AcceptanceRate).map(ratio),
            process_start: tally.process_start,
            malformed_lines,
            counters: Counters::from_tally(tally),
        }
    }
}

impl Counters {
    fn from_tally(tally: Tally) -> Self {
        let prompt_tokens = tally.sum(Quantity::PromptTokens);
        let generation_tokens = tally.sum(Quantity::GenerationTokens);
        let beside = tally.sum(Quantity::PrefixHitsBeside);
        let prefix_hits = tally.sum(Quantity::PrefixHits).or(beside);
        // Engines without a counter of lookups look every prompt token up; llama.cpp leaves the found
        // ones out of its prompt tokens.
        let looked_up = prompt_tokens
            .filter(|_| prefix_hits.is_some())
            .map(|computed| computed + beside.unwrap_or(0.0));
        let prefill_tokens = tally
            .sum(Quantity::PrefillTokens)
            .or_else(|| prompt_tokens.filter(|_| beside.is_some()));
        let histogram = |sum, count: Option<f64>| {
            Some(SumCount {
                sum: tally.sum(sum)?,
                count: count?,
            })
        };
        // llama.cpp prints seconds spent, and the tokens they were spent on in another counter.
        let itl_count = tally.sum(Quantity::ItlCount).or(generation_tokens);
        let prefill_count = tally.sum(Quantity::PrefillCount).or(prompt_tokens);
        Self {
            prefix_queries: tally.sum(Quantity::PrefixQueries).or(looked_up),
            prefix_hits,
            preemptions: tally.sum(Quantity::Preemptions),
            prompt_tokens,
            generation_tokens,
            steps: tally.sum(Quantity::Steps),
            prefill_tokens,
            ttft: histogram(Quantity::TtftSum, tally.sum(Quantity::TtftCount)),
            itl: histogram(Quantity::ItlSum, itl_count),
            queue: histogram(Quantity::QueueSum, tally.sum(Quantity::QueueCount)),
            prefill: histogram(Quantity::PrefillSum, prefill_count),
            spec: tally
                .sum(Quantity::DraftTokens)
                .map(|draft_tokens| SpecCounters {
                    drafts: tally.sum(Quantity::Drafts).unwrap_or(0.0),
                    draft_tokens,
                    accepted_tokens: tally.sum(Quantity::AcceptedTokens).unwrap_or(0.0),
                    accepted_at_position: tally.accepted_at_position,
                }),
        }
    }

    /// A number that moves whenever the engine does anything; `None` when the page shows no work.
    pub fn work_done(&self) -> Option<f64> {
        let parts = [self.steps, self.generation_tokens, self.prompt_tokens];
        parts.into_iter().flatten().reduce(|sum, part| sum + part)
    }
}
