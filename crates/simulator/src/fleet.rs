//! A fleet of simulated workers behind the production routing code, on a virtual clock.
//!
//! The router sees what it would see in production: metrics as old as the last scrape, its own books, KV events
//! late or not at all, and answers that say how much of their prompt was cached. It never looks into a worker.

use std::time::Duration;

use routing::admission::Demand;
use routing::index::{IndexConfig, Medium, PrefixIndex, Source, Stored};
use routing::keys::{BlockKey, KeySeed, Root, TokenChain};
use routing::{Draw, Policy, Priority, RequestView, WorkerId, WorkerView};

use crate::agenda::Agenda;
use crate::member::Member;
use crate::report::{Percentiles, Report};
use crate::rng::Rng;
use crate::spec::WorkerSpec;
use crate::worker::{Counters, Job, WorkerEvent};
use crate::workload::{Arrival, WorkItem, Workload};

const SEED: KeySeed = KeySeed(0);

/// What a router expects of an answer whose length it cannot know.
const EXPECTED_OUTPUT_TOKENS: u64 = 256;

/// How the fleet is set up and seen.
#[derive(Clone, Copy, Debug)]
pub struct FleetConfig {
    /// How many workers.
    pub workers: u16,
    /// All of this kind; their block size is the workload's.
    pub spec: WorkerSpec,
    /// Who decides.
    pub policy: Policy,
    /// How often each worker's metrics are read.
    pub scrape_every: Duration,
    /// How late KV events arrive; `None` for workers that send none.
    pub event_delay: Option<Duration>,
    /// Of everything random.
    pub seed: u64,
}

impl FleetConfig {
    /// Scraped twice a second, without events.
    pub fn new(workers: u16, spec: WorkerSpec, policy: Policy) -> Self {
        Self {
            workers,
            spec,
            policy,
            scrape_every: Duration::from_millis(500),
            event_delay: None,
            seed: 1,
        }
    }
}

/// Runs a workload to its end.
pub fn simulate(config: &FleetConfig, workload: &Workload) -> Report {
    let mut fleet = Fleet::new(config, workload);
    while let Some((at, what)) = fleet.agenda.pop() {
        fleet.now = at;
        fleet.handle(what);
    }
    debug_assert!(
        fleet.members.iter().all(Member::has_drained),
        "a request was left behind"
    );
    fleet.report()
}

enum What {
    Arrive(usize),
    StepEnds(usize, Vec<WorkerEvent>),
    Scrape(usize),
    KvEvents(usize, Vec<WorkerEvent>),
}

/// The times of one request.
#[derive(Clone, Copy, Default)]
struct Times {
    arrived: Option<Duration>,
    first_token: Option<Duration>,
    answered: Option<Duration>,
}

struct Fleet<'a> {
    config: &'a FleetConfig,
    workload: &'a Workload,
    /// Requests that wait for another's answer, by that other.
    followers: Vec<Vec<(usize, Duration)>>,
    members: Vec<Member>,
    index: PrefixIndex,
    agenda: Agenda<What>,
    now: Duration,
    rng: Rng,
    decisions: u64,
    open: usize,
    times: Vec<Times>,
    refused: usize,
}

impl<'a> Fleet<'a> {
    fn new(config: &'a FleetConfig, workload: &'a Workload) -> Self {
        let spec = WorkerSpec {
            block_tokens: workload.block_tokens,
            ..config.spec
        };
        // To the index a block of the workload is one token: its content id.
        let mut index = PrefixIndex::new(IndexConfig {
            block_tokens: 1,
            ..IndexConfig::new(SEED)
        });
        let source = if config.event_delay.is_some() {
            Source::Events
        } else {
            Source::Expectation
        };
        let members: Vec<Member> = (0..config.workers)
            .map(|id| Member::new(WorkerId(id), spec))
            .collect();
        for member in &members {
            index.set_worker(member.id, source, u32::try_from(spec.kv_blocks()).ok());
        }
        let mut fleet = Self {
            config,
            workload,
            followers: vec![Vec::new(); workload.items.len()],
            members,
            index,
            agenda: Agenda::default(),
            now: Duration::ZERO,
            rng: Rng::new(config.seed),
            decisions: 0,
            open: workload.items.len(),
            times: vec![Times::default(); workload.items.len()],
            refused: 0,
        };
        fleet.plan_arrivals();
        for member in 0..fleet.members.len() {
            // Staggered, as jitter would have it.
            let offset = config.scrape_every.mul_f64(fleet.rng.unit());
            fleet.agenda.push(offset, What::Scrape(member));
        }
        fleet
    }

    fn plan_arrivals(&mut self) {
        for (request, item) in self.workload.items.iter().enumerate() {
            match item.arrival {
                Arrival::At(when) => self.agenda.push(when, What::Arrive(request)),
                Arrival::After { previous, think } => match self.followers.get_mut(previous) {
                    Some(followers) => followers.push((request, think)),
                    None => self.agenda.push(think, What::Arrive(request)),
                },
            }
        }
    }

    fn handle(&mut self, what: What) {
        match what {
            What::Arrive(request) => self.dispatch(request),
            What::StepEnds(member, events) => self.step_ended(member, events),
            What::Scrape(member) => self.scrape(member),
            What::KvEvents(member, events) => self.kv_events(member, &events),
        }
    }

    fn dispatch(&mut self, request: usize) {
        let item = &self.workload.items[request];
        self.times[request].arrived = Some(self.now);
        let keys = keys(
            item,
            item.prompt_tokens / u64::from(self.workload.block_tokens),
        );
        let matches = self.index.matches(&keys, self.now);
        let views: Vec<WorkerView> = self
            .members
            .iter()
            .map(|member| member.view(self.now))
            .collect();
        let view = RequestView {
            prompt_tokens: item.prompt_tokens,
            expected_output_tokens: EXPECTED_OUTPUT_TOKENS,
            matches: &matches,
            block_tokens: self.workload.block_tokens,
            priority: Priority::Normal,
            session: item.session,
        };
        let draw = Draw {
            turn: self.decisions,
            random: self.rng.next_u64(),
        };
        self.decisions += 1;
        let Some(decision) = self.config.policy.decide(&view, &views, draw) else {
            self.refused += 1;
            self.close(request);
            return;
        };
        self.index.expect(decision.chosen, &keys, self.now);
        let at = usize::from(decision.chosen.0);
        let chosen = &views[at];
        let demand = Demand {
            uncached_prompt_tokens: view.uncached_tokens(chosen),
            kv_tokens: view.kv_demand(chosen),
        };
        let untempered = WorkerView {
            hit_trust: 1.0,
            ..chosen.clone()
        };
        let member = &mut self.members[at];
        member.sent(request, demand, view.cached_tokens(&untempered), self.now);
        member.worker.submit(Job {
            id: request,
            prompt_tokens: item.prompt_tokens,
            output_tokens: item.output_tokens,
            blocks: item.blocks.clone(),
        });
        self.start_step(at);
    }

    fn start_step(&mut self, member: usize) {
        let state = &mut self.members[member];
        if state.stepping {
            return;
        }
        if let Some(step) = state.worker.step() {
            state.stepping = true;
            self.agenda
                .push(self.now + step.takes, What::StepEnds(member, step.events));
        }
    }

    fn step_ended(&mut self, member: usize, events: Vec<WorkerEvent>) {
        self.members[member].stepping = false;
        let mut kv_events = Vec::new();
        for event in events {
            match event {
                WorkerEvent::Token { id, nth: 1 } => {
                    self.times[id].first_token = Some(self.now);
                    self.members[member].first_token(id, self.now);
                }
                WorkerEvent::Token { .. }
                | WorkerEvent::Admitted { .. }
                | WorkerEvent::Preempted { .. } => {}
                WorkerEvent::Finished { id, cached_tokens } => {
                    self.answered(member, id, cached_tokens)
                }
                WorkerEvent::Refused { id } => {
                    self.refused += 1;
                    self.members[member].settle(id, self.now);
                    self.close(id);
                }
                WorkerEvent::Stored { .. } | WorkerEvent::Removed { .. } => kv_events.push(event),
            }
        }
        if let Some(delay) = self.config.event_delay
            && !kv_events.is_empty()
        {
            self.agenda
                .push(self.now + delay, What::KvEvents(member, kv_events));
        }
        self.start_step(member);
    }

    fn answered(&mut self, member: usize, request: usize, cached_tokens: u64) {
        self.times[request].answered = Some(self.now);
        let state = &mut self.members[member];
        state.answered(request, cached_tokens, self.now);
        // The answer is cached, too: the next turn of a chat will begin with it.
        let keys = keys(&self.workload.items[request], u64::MAX);
        self.index.expect(state.id, &keys, self.now);
        self.close(request);
    }

    /// A request is over, one way or another: whoever waited for it comes after a while.
    fn close(&mut self, request: usize) {
        self.open -= 1;
        for (next, think) in std::mem::take(&mut self.followers[request]) {
            self.agenda.push(self.now + think, What::Arrive(next));
        }
    }

    fn scrape(&mut self, member: usize) {
        self.members[member].scrape(self.now);
        if self.open > 0 {
            self.agenda
                .push(self.now + self.config.scrape_every, What::Scrape(member));
        }
    }

    fn kv_events(&mut self, member: usize, events: &[WorkerEvent]) {
        let worker = self.members[member].id;
        for event in events {
            match event {
                WorkerEvent::Stored {
                    parent,
                    hashes,
                    blocks,
                    ..
                } => {
                    let event = Stored {
                        parent: *parent,
                        root: Root::new(SEED, "", None),
                        hashes,
                        tokens: blocks,
                        block_tokens: 1,
                        medium: Medium::Resident,
                    };
                    let placed = self.index.stored(worker, event, self.now);
                    debug_assert!(
                        placed.is_ok(),
                        "a complete stream of events leaves no orphan: {placed:?}"
                    );
                }
                WorkerEvent::Removed { hashes } => {
                    self.index
                        .removed(worker, hashes, Medium::Resident, self.now);
                }
                _ => {}
            }
        }
    }

    fn report(&self) -> Report {
        let mut first_tokens = self.since_arrival(|times| times.first_token);
        let mut answers = self.since_arrival(|times| times.answered);
        let begin = self
            .times
            .iter()
            .filter_map(|times| times.arrived)
            .min()
            .unwrap_or_default();
        let last_arrival = self
            .times
            .iter()
            .filter_map(|times| times.arrived)
            .max()
            .unwrap_or_default();
        let end = self
            .times
            .iter()
            .filter_map(|times| times.answered)
            .max()
            .unwrap_or_default();
        let seconds = |until: Duration| until.saturating_sub(begin).as_secs_f64();
        let span = seconds(end).max(f64::EPSILON);
        let counters: Vec<Counters> = self
            .members
            .iter()
            .map(|member| member.worker.counters())
            .collect();
        let sum = |figure: fn(&Counters) -> u64| counters.iter().map(figure).sum::<u64>();
        let workers = counters.len().max(1) as f64;
        let most_work = counters.iter().map(|c| c.prefill_tokens).max().unwrap_or(0) as f64;
        Report {
            finished: answers.len(),
            refused: self.refused,
            ttft: Percentiles::of(&mut first_tokens),
            end_to_end: Percentiles::of(&mut answers),
            requests_per_second: answers.len() as f64 / span,
            carried: seconds(last_arrival) / span,
            hit_share: sum(|c| c.cached_tokens) as f64 / sum(|c| c.prompt_tokens).max(1) as f64,
            predicted_within_a_block: self.members.iter().map(Member::exact_share).sum::<f64>()
                / workers,
            evictions: sum(|c| c.evictions),
            preemptions: sum(|c| c.preemptions),
            hot_spot: workers * most_work / sum(|c| c.prefill_tokens).max(1) as f64,
            busy: counters.iter().map(|c| c.busy.as_secs_f64()).sum::<f64>() / (span * workers),
        }
    }

    fn since_arrival(&self, of: fn(&Times) -> Option<Duration>) -> Vec<Duration> {
        self.times
            .iter()
            .filter_map(|times| Some(of(times)?.saturating_sub(times.arrived?)))
            .collect()
    }
}

/// The keys of the first blocks of a request.
fn keys(item: &WorkItem, blocks: u64) -> Vec<BlockKey> {
    let blocks = usize::try_from(blocks)
        .unwrap_or(usize::MAX)
        .min(item.blocks.len());
    let mut chain = TokenChain::new(Root::new(SEED, "", None), 1);
    chain.extend(&item.blocks[..blocks]);
    chain.keys().to_vec()
}
