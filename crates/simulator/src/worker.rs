//! A vLLM-like worker, one step at a time.
//!
//! A step has a budget of tokens. Running requests come first: one token each for those that decode, a chunk of
//! the prompt for those that do not yet. What is left of the budget admits waiting requests in the order of
//! their arrival, if their whole prompt has room. When a running request finds no block for its next token, the
//! youngest one is preempted: it loses its blocks and starts over (most of it may still be cached).
//!
//! A step takes
//!
//! ```text
//! seconds = base + per_sequence * decodes + per_context_token * tokens they attend to
//!         + sum over prefill chunks of tokens / rate * (1 + mean context / attention_scale)
//! ```
//!
//! The worker has no clock: [`SimWorker::step`] says how long the step takes and what will have happened at its end.
//! A discrete-event loop jumps there; a mock server sleeps until then. What is submitted meanwhile waits for the
//! next step.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;

use crate::kv::{BlockId, KvCache};
use crate::spec::WorkerSpec;

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

struct Sequence {
    job: Job,
    hashes: Vec<u64>,
    held: Vec<BlockId>,
    /// Tokens in the cache or computed.
    computed: u64,
    generated: u64,
    cached_tokens: u64,
    /// Full blocks named so far.
    named: usize,
    first_admission: bool,
}

impl Sequence {
    /// Tokens that must be computed before the next one comes out.
    fn target(&self) -> u64 {
        self.job.prompt_tokens + self.generated
    }

    fn decoding(&self) -> bool {
        self.computed + 1 == self.target() && self.generated > 0
    }
}

/// The worker's state: its cache, what runs and what waits.
pub struct SimWorker {
    spec: WorkerSpec,
    kv: KvCache,
    running: Vec<Sequence>,
    waiting: VecDeque<Sequence>,
    /// Requests it can never hold; the next step says so.
    refused: Vec<usize>,
    counters: Counters,
}

impl SimWorker {
    /// An idle worker.
    pub fn new(spec: WorkerSpec) -> Self {
        let spec = WorkerSpec {
            block_tokens: spec.block_tokens.max(1),
            step_tokens: spec.step_tokens.max(1),
            ..spec
        };
        Self {
            spec,
            kv: KvCache::new(u32::try_from(spec.kv_blocks()).unwrap_or(u32::MAX - 1)),
            running: Vec::new(),
            waiting: VecDeque::new(),
            refused: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Puts a request at the end of the queue. A prompt has at least one token.
    pub fn submit(&mut self, job: Job) {
        let job = Job {
            prompt_tokens: job.prompt_tokens.max(1),
            ..job
        };
        let capacity = self.kv.capacity() as u64 * u64::from(self.spec.block_tokens);
        if job.prompt_tokens.saturating_add(job.output_tokens) > capacity {
            self.refused.push(job.id);
            return;
        }
        let hashes = engine_hashes(&job.blocks);
        self.waiting.push_back(Sequence {
            job,
            hashes,
            held: Vec::new(),
            computed: 0,
            generated: 0,
            cached_tokens: 0,
            named: 0,
            first_admission: true,
        });
    }

    /// Drops a request whose client has gone.
    pub fn abort(&mut self, id: usize) {
        self.waiting.retain(|sequence| sequence.job.id != id);
        if let Some(at) = self
            .running
            .iter()
            .position(|sequence| sequence.job.id == id)
        {
            let sequence = self.running.remove(at);
            self.kv.release(&sequence.held);
        }
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty() && self.refused.is_empty()
    }

    /// What it would report now.
    pub fn gauges(&self) -> Gauges {
        let capacity = self.kv.capacity().max(1) as f64;
        Gauges {
            running: self.running.len() as u32,
            waiting: self.waiting.len() as u32,
            kv_usage: (self.kv.capacity() - self.kv.unused()) as f64 / capacity,
        }
    }

    /// What it has counted.
    pub fn counters(&self) -> Counters {
        Counters {
            evictions: self.kv.evictions(),
            ..self.counters
        }
    }

    /// Its speeds and sizes.
    pub fn spec(&self) -> &WorkerSpec {
        &self.spec
    }

    /// Plans and takes one step; `None` when idle.
    pub fn step(&mut self) -> Option<Step> {
        let mut plan = Plan {
            budget: u64::from(self.spec.step_tokens),
            ..Plan::default()
        };
        plan.events
            .extend(self.refused.drain(..).map(|id| WorkerEvent::Refused { id }));
        if self.running.is_empty() && self.waiting.is_empty() {
            return (!plan.events.is_empty()).then_some(Step {
                takes: Duration::ZERO,
                events: plan.events,
            });
        }
        self.schedule_running(&mut plan);
        if !plan.preempted {
            self.admit_waiting(&mut plan);
        }
        let takes = self.duration(&plan);
        self.account(&plan, takes);
        self.advance(&mut plan);
        if !plan.evicted.is_empty() {
            // Blocks are evicted when the step is planned, so before what it stores.
            plan.events.insert(
                0,
                WorkerEvent::Removed {
                    hashes: std::mem::take(&mut plan.evicted),
                },
            );
        }
        Some(Step {
            takes,
            events: plan.events,
        })
    }

    fn schedule_running(&mut self, plan: &mut Plan) {
        let mut at = 0;
        while at < self.running.len() && plan.budget > 0 {
            let tokens = (self.running[at].target() - self.running[at].computed).min(plan.budget);
            if self.make_room(at, tokens, plan) {
                let sequence = &self.running[at];
                plan.schedule(sequence, tokens);
                at += 1;
            }
        }
        // Those beyond the budget sit this step out.
        plan.chunks.resize(self.running.len(), 0);
    }

    /// Gives a running request the blocks for its next tokens, preempting the youngest until there are enough.
    /// `false` if it was itself the youngest.
    fn make_room(&mut self, at: usize, tokens: u64, plan: &mut Plan) -> bool {
        loop {
            let missing = self.blocks_missing(&self.running[at], tokens);
            if missing <= self.kv.unused() {
                for _ in 0..missing {
                    if let Some(id) = self.kv.allocate(&mut plan.evicted) {
                        self.running[at].held.push(id);
                    }
                }
                return true;
            }
            let Some(mut victim) = self.running.pop() else {
                return false;
            };
            self.kv.release(&victim.held);
            victim.held.clear();
            victim.computed = 0;
            victim.named = 0;
            self.counters.preemptions += 1;
            plan.preempted = true;
            plan.events
                .push(WorkerEvent::Preempted { id: victim.job.id });
            self.waiting.push_front(victim);
            if self.running.len() <= at {
                return false;
            }
        }
    }

    fn blocks_missing(&self, sequence: &Sequence, tokens: u64) -> usize {
        let needed = (sequence.computed + tokens).div_ceil(u64::from(self.spec.block_tokens));
        (needed as usize).saturating_sub(sequence.held.len())
    }

    fn admit_waiting(&mut self, plan: &mut Plan) {
        while plan.budget > 0 && self.running.len() < self.spec.max_sequences as usize {
            let Some(sequence) = self.waiting.front() else {
                return;
            };
            let block = u64::from(self.spec.block_tokens);
            // The last token is always computed: something must come out of the step.
            let reusable = ((sequence.target() - 1) / block) as usize;
            let named = &sequence.hashes[..reusable.min(sequence.hashes.len())];
            let cached = self.kv.cached(named);
            let needed = sequence.target().div_ceil(block) as usize - cached;
            if needed + self.kv.idle_among(&named[..cached]) > self.kv.unused() {
                return;
            }
            let Some(mut sequence) = self.waiting.pop_front() else {
                return;
            };
            for hash in &sequence.hashes[..cached] {
                sequence.held.extend(self.kv.reuse(*hash));
            }
            sequence.named = cached;
            sequence.computed = cached as u64 * block;
            if sequence.first_admission {
                sequence.first_admission = false;
                sequence.cached_tokens = sequence.computed.min(sequence.job.prompt_tokens);
                self.counters.prompt_tokens += sequence.job.prompt_tokens;
                self.counters.cached_tokens += sequence.cached_tokens;
            }
            let tokens = (sequence.target() - sequence.computed).min(plan.budget);
            for _ in 0..self.blocks_missing(&sequence, tokens) {
                sequence.held.extend(self.kv.allocate(&mut plan.evicted));
            }
            plan.schedule(&sequence, tokens);
            self.running.push(sequence);
        }
    }

    fn duration(&self, plan: &Plan) -> Duration {
        let spec = &self.spec;
        let decode = spec.step_per_sequence.as_secs_f64() * plan.decodes as f64
            + spec.step_seconds_per_context_token * plan.decode_context as f64;
        spec.step_base + Duration::from_secs_f64(decode + self.prefill_seconds(plan))
    }

    fn prefill_seconds(&self, plan: &Plan) -> f64 {
        let attention = plan.prefill_token_context / self.spec.attention_scale_tokens;
        (plan.prefill_tokens as f64 + attention) / self.spec.prefill_tokens_per_second
    }

    fn account(&mut self, plan: &Plan, takes: Duration) {
        self.counters.busy += takes;
        self.counters.prefill_tokens += plan.prefill_tokens;
        self.counters.prefill_time += Duration::from_secs_f64(self.prefill_seconds(plan));
        self.counters.inter_token_time += takes * plan.decodes as u32;
        self.counters.inter_token_count += plan.decodes;
    }

    /// Applies the plan: computed tokens, named blocks, tokens out, finished requests.
    fn advance(&mut self, plan: &mut Plan) {
        let Self {
            running,
            kv,
            counters,
            spec,
            ..
        } = self;
        let mut chunks = plan.chunks.iter();
        running.retain_mut(|sequence| {
            let tokens = chunks.next().copied().unwrap_or(0);
            sequence.computed += tokens;
            name_full_blocks(sequence, kv, spec.block_tokens, &mut plan.events);
            if tokens == 0 || sequence.computed < sequence.target() {
                return true;
            }
            sequence.generated += 1;
            counters.output_tokens += 1;
            let id = sequence.job.id;
            plan.events.push(WorkerEvent::Token {
                id,
                nth: sequence.generated,
            });
            if sequence.generated < sequence.job.output_tokens {
                return true;
            }
            kv.release(&sequence.held);
            plan.events.push(WorkerEvent::Finished {
                id,
                cached_tokens: sequence.cached_tokens,
            });
            false
        });
    }
}

#[derive(Default)]
struct Plan {
    budget: u64,
    /// Tokens per running request, in their order.
    chunks: Vec<u64>,
    decodes: u64,
    decode_context: u64,
    prefill_tokens: u64,
    /// Sum over prefilled tokens of the context they attend to.
    prefill_token_context: f64,
    preempted: bool,
    evicted: Vec<u64>,
    events: Vec<WorkerEvent>,
}

impl Plan {
    fn schedule(&mut self, sequence: &Sequence, tokens: u64) {
        self.budget -= tokens;
        self.chunks.push(tokens);
        if sequence.decoding() {
            self.decodes += 1;
            self.decode_context += sequence.computed;
        } else {
            self.prefill_tokens += tokens;
            let context = sequence.computed as f64 + tokens as f64 / 2.0;
            self.prefill_token_context += tokens as f64 * context;
        }
    }
}

fn name_full_blocks(
    sequence: &mut Sequence,
    kv: &mut KvCache,
    block_tokens: u32,
    events: &mut Vec<WorkerEvent>,
) {
    let full = (sequence.computed / u64::from(block_tokens)) as usize;
    let upto = full.min(sequence.hashes.len()).min(sequence.held.len());
    if upto <= sequence.named {
        return;
    }
    let parent = sequence
        .named
        .checked_sub(1)
        .map(|before| sequence.hashes[before]);
    for place in sequence.named..upto {
        kv.name(sequence.held[place], sequence.hashes[place]);
    }
    events.push(WorkerEvent::Stored {
        parent,
        hashes: sequence.hashes[sequence.named..upto].to_vec(),
        blocks: sequence.job.blocks[sequence.named..upto].to_vec(),
    });
    sequence.named = upto;
}

/// The engine's own names for blocks: chained, and nobody else's business.
fn engine_hashes(blocks: &[u32]) -> Vec<u64> {
    let mut parent = 0x656e_6769_6e65_u64;
    blocks
        .iter()
        .map(|block| {
            let mut z =
                (parent.rotate_left(23) ^ u64::from(*block)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            parent = z ^ (z >> 32);
            parent
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spec(kv_tokens: u64) -> WorkerSpec {
        WorkerSpec {
            kv_tokens,
            ..WorkerSpec::a100_8b()
        }
    }

    fn job(id: usize, prompt_tokens: u64, output_tokens: u64, content: u32) -> Job {
        let blocks = ((prompt_tokens + output_tokens) / 16) as u32;
        Job {
            id,
            prompt_tokens,
            output_tokens,
            blocks: (0..blocks).map(|at| content * 10_000 + at).collect(),
        }
    }

    /// Runs until idle; every event with the time at which it came.
    fn run(worker: &mut SimWorker) -> Vec<(Duration, WorkerEvent)> {
        let mut now = Duration::ZERO;
        let mut events = Vec::new();
        while let Some(step) = worker.step() {
            now += step.takes;
            events.extend(step.events.into_iter().map(|event| (now, event)));
        }
        events
    }

    fn first_token(events: &[(Duration, WorkerEvent)], of: usize) -> Duration {
        let token = |event: &WorkerEvent| *event == WorkerEvent::Token { id: of, nth: 1 };
        events.iter().find(|(_, event)| token(event)).unwrap().0
    }

    #[test]
    fn a_lone_prompt_takes_its_tokens_over_the_rate() {
        let mut worker = SimWorker::new(WorkerSpec {
            attention_scale_tokens: f64::INFINITY,
            ..spec(300_000)
        });
        worker.submit(job(0, 4_000, 1, 0));
        let ttft = first_token(&run(&mut worker), 0).as_secs_f64();
        assert!((ttft - 0.408).abs() < 1e-6, "{ttft}");
    }

    #[test]
    fn a_prompt_seen_before_costs_only_what_is_new() {
        let mut worker = SimWorker::new(spec(300_000));
        worker.submit(job(0, 8_000, 10, 0));
        let cold = first_token(&run(&mut worker), 0);
        worker.submit(job(1, 8_000, 10, 0));
        let events = run(&mut worker);
        assert!(first_token(&events, 1) * 10 < cold);
        // All but the last block: something must be computed for a token to come out.
        let finished = WorkerEvent::Finished {
            id: 1,
            cached_tokens: 7_984,
        };
        assert!(
            events.iter().any(|(_, event)| *event == finished),
            "{:?}",
            events.last()
        );
    }

    #[test]
    fn more_requests_at_once_lengthen_the_time_between_tokens() {
        let gap = |requests: usize| {
            let mut worker = SimWorker::new(spec(300_000));
            (0..requests).for_each(|id| worker.submit(job(id, 100, 50, id as u32)));
            run(&mut worker);
            let counters = worker.counters();
            counters
                .inter_token_time
                .div_f64(counters.inter_token_count as f64)
        };
        assert!(gap(64) > gap(1) + Duration::from_millis(3));
    }

    #[test]
    fn a_long_prompt_is_computed_in_chunks_beside_running_answers() {
        let mut worker = SimWorker::new(spec(300_000));
        worker.submit(job(0, 100, 200, 0));
        worker.step();
        worker.submit(job(1, 40_000, 1, 1));
        let events = run(&mut worker);
        let long = first_token(&events, 1);
        let between = events
            .iter()
            .filter(|(at, event)| *at < long && matches!(event, WorkerEvent::Token { id: 0, .. }))
            .count();
        assert_eq!(between, 4, "one token per chunk of 8,192");
    }

    #[test]
    fn when_blocks_run_out_the_youngest_starts_over_and_all_still_finish() {
        let mut worker = SimWorker::new(spec(2_048));
        (0..4).for_each(|id| worker.submit(job(id, 400, 600, id as u32)));
        let events = run(&mut worker);
        let finished = events
            .iter()
            .filter(|(_, event)| matches!(event, WorkerEvent::Finished { .. }))
            .count();
        assert_eq!(finished, 4);
        assert!(worker.counters().preemptions > 0);
        assert_eq!(worker.gauges(), Gauges::default());
    }

    #[test]
    fn a_request_larger_than_the_cache_is_refused_and_blocks_nobody() {
        let mut worker = SimWorker::new(spec(2_048));
        worker.submit(job(0, 5_000, 10, 0));
        worker.submit(job(1, 500, 10, 1));
        let events = run(&mut worker);
        assert!(
            events
                .iter()
                .any(|(_, event)| *event == WorkerEvent::Refused { id: 0 })
        );
        assert!(
            events
                .iter()
                .any(|(_, event)| matches!(event, WorkerEvent::Finished { id: 1, .. }))
        );
    }

    #[test]
    fn an_abort_gives_the_blocks_back_at_once() {
        let mut worker = SimWorker::new(spec(300_000));
        worker.submit(job(0, 5_000, 1_000, 0));
        worker.submit(job(1, 5_000, 1_000, 1));
        worker.step();
        worker.abort(0);
        worker.abort(1);
        assert!(worker.is_idle());
        assert_eq!(worker.gauges(), Gauges::default());
    }

    proptest! {
        #[test]
        fn every_request_gets_all_its_tokens_and_the_cache_drains(
            jobs in proptest::collection::vec((1u64..1_500, 1u64..300, 0u32..6), 1..25),
            kv_tokens in 2_048u64..6_000,
            step_tokens in 16u32..2_000,
        ) {
            let mut worker = SimWorker::new(WorkerSpec { step_tokens, ..spec(kv_tokens) });
            for (id, (prompt, output, content)) in jobs.iter().enumerate() {
                worker.submit(job(id, *prompt, *output, *content));
            }
            let events = run(&mut worker);
            for (id, (_, output, _)) in jobs.iter().enumerate() {
                let tokens: Vec<u64> = events
                    .iter()
                    .filter_map(|(_, event)| match event {
                        WorkerEvent::Token { id: of, nth } if *of == id => Some(*nth),
                        _ => None,
                    })
                    .collect();
                prop_assert_eq!(tokens, (1..=*output).collect::<Vec<_>>());
            }
            prop_assert_eq!(worker.gauges(), Gauges::default());
            let counters = worker.counters();
            prop_assert!(counters.cached_tokens < counters.prompt_tokens);
        }
    }
}
