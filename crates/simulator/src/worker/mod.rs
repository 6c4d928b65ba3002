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

mod plan;
mod sequence;
#[cfg(test)]
mod tests;
mod types;

use std::collections::VecDeque;
use std::time::Duration;

use crate::kv::KvCache;
use crate::spec::WorkerSpec;
use plan::Plan;
use sequence::{Sequence, name_full_blocks};
pub use types::{Counters, Gauges, Job, Step, WorkerEvent};

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
        self.waiting.push_back(Sequence::new(job));
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
        let takes = plan.takes(&self.spec);
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
            plan.events.push(WorkerEvent::Admitted {
                id: sequence.job.id,
                cached_tokens: sequence.computed,
            });
            let tokens = (sequence.target() - sequence.computed).min(plan.budget);
            for _ in 0..self.blocks_missing(&sequence, tokens) {
                sequence.held.extend(self.kv.allocate(&mut plan.evicted));
            }
            plan.schedule(&sequence, tokens);
            self.running.push(sequence);
        }
    }

    fn account(&mut self, plan: &Plan, takes: Duration) {
        self.counters.busy += takes;
        self.counters.prefill_tokens += plan.prefill_tokens;
        self.counters.prefill_time += plan.prefill_takes(&self.spec);
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
