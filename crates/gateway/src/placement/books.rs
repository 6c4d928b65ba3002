//! What is known of a pool's workers, and how one of them is chosen and booked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fleet::health::{PanicConfig, Standing};
use fleet::{Snapshot, Worker, WorkerId};
use routing::admission::{Demand, DrainRate, MIN_RETRY, Pressure, Refusal, RefusalCause, Rules};
use routing::index::{Matches, PrefixIndex};
use routing::{Decision, Draw, Policy, Priority, RequestView, Speeds, WorkerView};

use super::account::Account;
use super::chosen::Chosen;
use super::claim::Claim;
use super::config::PoolConfig;
use super::desk::Booking;
use super::outcome::Reported;
use super::reading::Prompt;
use super::sent::Sent;

/// Tokens of an answer while none has been seen: what the simulator's routers expect.
const FIRST_GUESS_OUTPUT_TOKENS: f64 = 256.0;

/// How much of the expected answer a new one replaces: the last hundred or so decide.
const NEW_ANSWER_SHARE: f64 = 0.02;

/// The present, on both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// For everything pure.
    pub(super) since_start: Duration,
    /// For the fleet.
    pub(super) instant: Instant,
}

/// A request whose prompt was read.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) tenant: Arc<str>,
    /// Whether it goes to the worker with a cache salt.
    pub(super) is_salted: bool,
    pub(super) prompt: Arc<Prompt>,
    pub(super) max_tokens: Option<u64>,
    pub(super) answers: u32,
    pub(super) priority: Priority,
    pub(super) session: u64,
    /// Workers that failed it before.
    pub(super) avoid: Vec<WorkerId>,
}

impl Wanted {
    /// How it is admitted. Whoever was admitted before and lost its worker is not turned away for want of room: it
    /// waits, like the most urgent.
    pub(super) fn priority_at_the_door(&self) -> Priority {
        if self.avoid.is_empty() {
            self.priority
        } else {
            Priority::High
        }
    }
}

/// A request held against every worker of the pool.
pub(super) struct Weighed<'a> {
    /// Each with the rank of it that would be named.
    workers: Vec<(&'a Arc<Worker>, Option<u16>)>,
    views: Vec<WorkerView>,
    matches: Matches,
    prompt_tokens: u64,
    expected_output_tokens: u64,
    block_tokens: u32,
    priority: Priority,
    session: u64,
}

impl Weighed<'_> {
    fn request(&self) -> RequestView<'_> {
        RequestView {
            prompt_tokens: self.prompt_tokens,
            expected_output_tokens: self.expected_output_tokens,
            matches: &self.matches,
            block_tokens: self.block_tokens,
            priority: self.priority,
            session: self.session,
        }
    }

    pub(super) fn pressure(&self) -> Pressure {
        Pressure::of(&self.request(), &self.views)
    }

    /// KV tokens it takes on the worker that holds most of it.
    pub(super) fn least_demand(&self) -> u64 {
        let request = self.request();
        let open = self.views.iter().filter(|view| view.weight > 0.0);
        open.map(|view| request.kv_demand(view))
            .min()
            .unwrap_or(self.prompt_tokens)
    }
}

pub(super) struct Books {
    pool: String,
    policy: Policy,
    panic: PanicConfig,
    pub(super) rules: Rules,
    pub(super) index: PrefixIndex,
    pub(super) drain: DrainRate,
    accounts: Vec<Option<Account>>,
    next_epoch: u64,
    expected_output_tokens: f64,
    draw: Draw,
    /// Prompts that went out and that others are still to be told of.
    pub(super) sent: Option<Sent>,
}

impl Books {
    pub(super) fn new(config: &PoolConfig, index: PrefixIndex, random: u64) -> Self {
        Self {
            pool: config.name.clone(),
            policy: config.policy,
            panic: config.panic,
            rules: Rules {
                patience: config.patience,
                limits: config.usage_limits,
            },
            index,
            drain: DrainRate::default(),
            accounts: Vec::new(),
            next_epoch: 0,
            expected_output_tokens: FIRST_GUESS_OUTPUT_TOKENS,
            draw: Draw { turn: 0, random },
            sent: config.shared_seed.map(|_| Sent::default()),
        }
    }

    /// Takes in what the fleet has learned: new workers, new pages of metrics.
    pub(super) fn catch_up(&mut self, fleet: &Snapshot, now: Now) {
        for worker in fleet.workers() {
            if worker.spec().pool == self.pool {
                self.open(worker, now);
                self.take_in_metrics(worker, now);
            }
        }
    }

    fn open(&mut self, worker: &Arc<Worker>, now: Now) {
        let at = usize::from(worker.id().0);
        if self.accounts.len() <= at {
            self.accounts.resize_with(at + 1, || None);
        }
        let known = self.account(worker.id());
        if known.is_some_and(|account| Arc::ptr_eq(&account.worker, worker)) {
            return;
        }
        self.index.remove_worker(worker.id());
        let account = Account::new(Arc::clone(worker), self.next_epoch, now.since_start);
        account.introduce_to(&mut self.index);
        self.next_epoch += 1;
        if let Some(slot) = self.accounts.get_mut(at) {
            *slot = Some(account);
        }
    }

    fn take_in_metrics(&mut self, worker: &Arc<Worker>, now: Now) {
        let Some(seen) = worker.sighting() else {
            return;
        };
        let Self {
            accounts, index, ..
        } = self;
        let account = accounts.get_mut(usize::from(worker.id().0));
        let Some(account) = account.and_then(Option::as_mut) else {
            return;
        };
        if account.scraped == Some(seen.at) {
            return;
        }
        account.scraped = Some(seen.at);
        let age = now.instant.saturating_duration_since(seen.asked);
        account.ledger.scraped(now.since_start.saturating_sub(age));
        if let Some(size) = seen.observation.cache.block_size {
            account.engine_block_tokens = u64::from(size).max(1);
        }
        let capacity = seen.observation.cache.capacity_tokens;
        let changed = account.capacity_tokens != capacity;
        account.capacity_tokens = capacity;
        let restarted = seen.rates.as_ref().is_some_and(|rates| rates.restarted);
        if restarted {
            index.restarted(worker.id(), now.since_start);
        }
        if changed {
            account.introduce_to(index);
        }
    }

    /// The pool's workers and what each may be given.
    pub(super) fn standings<'a>(
        &self,
        fleet: &'a Snapshot,
        now: Now,
    ) -> Vec<(&'a Arc<Worker>, Standing)> {
        fleet.standings(&self.pool, self.panic, &[], now.instant)
    }

    /// Holds a request against all workers.
    pub(super) fn weigh<'a>(&self, fleet: &'a Snapshot, wanted: &Wanted, now: Now) -> Weighed<'a> {
        let standings = fleet.standings(&self.pool, self.panic, &wanted.avoid, now.instant);
        let mut workers = Vec::with_capacity(standings.len());
        let mut views = Vec::with_capacity(standings.len());
        let mut largest = 0;
        let prompt = &wanted.prompt;
        let mut matches = self.index.matches(&prompt.keys, now.since_start);
        let peers = Speeds::mean(standings.iter().map(|(worker, _)| worker.speeds()));
        for (worker, Standing { weight, .. }) in standings {
            let Some(account) = self.account(worker.id()) else {
                continue;
            };
            let mut view = worker.view(
                weight,
                Default::default(),
                account.calibration.trust(),
                peers,
                now.instant,
            );
            view.ledger = account.ledger.view(now.since_start, view.prefill_rate());
            if weight > 0.0 {
                largest = largest.max(view.kv_capacity_tokens);
            }
            let rank = account
                .ranks
                .choose(&matches, worker.id(), worker.in_flight() as usize);
            if let Some(rank) = rank {
                matches.count_on(worker.id(), rank);
            }
            workers.push((worker, rank));
            views.push(view);
        }
        Weighed {
            workers,
            views,
            matches,
            prompt_tokens: prompt.tokens,
            expected_output_tokens: self.expected_output(wanted, largest),
            block_tokens: self.index.block_tokens() as u32,
            priority: wanted.priority,
            session: wanted.session,
        }
    }

    /// What would be decided now.
    pub(super) fn decide(&self, weighed: &Weighed<'_>) -> Option<Decision> {
        self.policy
            .decide(&weighed.request(), &weighed.views, self.draw)
    }

    /// Chooses and books; `None` if nobody may get traffic.
    pub(super) fn book(
        &mut self,
        wanted: &Wanted,
        weighed: Weighed<'_>,
        waited: Duration,
        now: Now,
    ) -> Option<Booking> {
        let decision = self.decide(&weighed)?;
        let request = weighed.request();
        self.draw = Draw {
            turn: self.draw.turn + 1,
            random: scramble(self.draw.random),
        };
        let place = weighed
            .views
            .iter()
            .position(|view| view.id == decision.chosen)?;
        let view = weighed.views.get(place)?;
        let (worker, rank) = *weighed.workers.get(place)?;
        // Its breaker may have opened since it was looked at; whoever was chosen in panic goes anyway.
        let attempt = worker
            .begin(now.instant)
            .unwrap_or_else(|| worker.begin_anyway(now.instant));

        let demand = Demand {
            uncached_prompt_tokens: request.uncached_tokens(view),
            kv_tokens: request.kv_demand(view),
        };
        let most_output = wanted.max_tokens.unwrap_or(request.expected_output_tokens);
        let claimed_tokens = request.prompt_tokens + most_output * u64::from(wanted.answers);
        let matched = request.matches.blocks(view.id) + request.matches.loadable(view.id);
        let matched = u64::from(matched) * u64::from(request.block_tokens);
        let account = self.account_mut(view.id)?;
        let ticket = account.ledger.reserve(demand, now.since_start);
        account.claimed_tokens += claimed_tokens;
        account.sent_salted |= wanted.is_salted;
        let predicted_cached = whole_blocks(
            matched.min(request.prompt_tokens.saturating_sub(1)),
            account.engine_block_tokens,
        );
        let adds_blocks =
            request.prompt_tokens.saturating_sub(predicted_cached) >= account.engine_block_tokens;
        account.unannounced = account.unannounced.saturating_add(u32::from(adds_blocks));
        account.ranks.begin(rank);
        let (epoch, cache) = (account.epoch, account.cache(rank));
        if let Some(cache) = cache {
            self.index
                .expect(cache, &wanted.prompt.keys, now.since_start);
        }
        if let Some(sent) = &mut self.sent {
            sent.note(worker, &wanted.prompt);
        }
        Some(Booking {
            worker: Arc::clone(worker),
            claim: Claim {
                worker: worker.id(),
                epoch,
                ticket,
                kv_tokens: demand.kv_tokens,
                claimed_tokens,
                rank,
            },
            attempt,
            predicted_cached,
            chosen: Arc::new(Chosen::new(
                (worker, rank),
                wanted,
                decision,
                predicted_cached,
                waited,
            )),
        })
    }

    /// The refusal when there is nobody to send anything to.
    pub(super) fn nobody(&self) -> Refusal {
        Refusal {
            cause: RefusalCause::NoWorkers,
            retry_after: Some(MIN_RETRY),
        }
    }

    /// Its first token came.
    pub(super) fn first_token(&mut self, claim: Claim, now: Now) {
        if let Some(account) = self.current(claim) {
            account.ledger.first_token(claim.ticket, now.since_start);
        }
    }

    /// A request turns out to hold more than was thought.
    pub(super) fn claim_more(&mut self, claim: Claim, tokens: u64) {
        if let Some(account) = self.current(claim) {
            account.claimed_tokens += tokens;
        }
    }

    /// A request is over.
    pub(super) fn settle(&mut self, claim: Claim, now: Now) {
        self.drain.settled(claim.kv_tokens, now.since_start);
        if let Some(account) = self.current(claim) {
            account.ledger.settle(claim.ticket, now.since_start);
            account.claimed_tokens = account.claimed_tokens.saturating_sub(claim.claimed_tokens);
            account.ranks.end(claim.rank);
        }
    }

    /// An answer says what it took. Returns the size of a block, by which a prediction may be off.
    pub(super) fn learn(
        &mut self,
        claim: Claim,
        predicted_cached: u64,
        answers: u32,
        reported: Reported,
    ) -> u64 {
        if let Some(tokens) = reported.completion_tokens {
            let each = tokens as f64 / f64::from(answers.max(1));
            self.expected_output_tokens += NEW_ANSWER_SHARE * (each - self.expected_output_tokens);
        }
        let own = self.index.block_tokens() as u64;
        let account = self.current(claim);
        let block = account
            .as_ref()
            .map_or(own, |account| account.engine_block_tokens.max(own));
        if let (Some(account), Some(cached)) = (account, reported.cached_tokens) {
            let block = u32::try_from(block).unwrap_or(u32::MAX);
            account.calibration.observe(predicted_cached, cached, block);
        }
        block
    }

    /// A worker has left the fleet for good.
    pub(super) fn gone(&mut self, worker: WorkerId) {
        self.index.remove_worker(worker);
        if let Some(slot) = self.accounts.get_mut(usize::from(worker.0)) {
            *slot = None;
        }
    }

    /// How it chooses.
    pub(super) fn policy(&self) -> Policy {
        self.policy
    }

    pub(super) fn account(&self, worker: WorkerId) -> Option<&Account> {
        self.accounts.get(usize::from(worker.0))?.as_ref()
    }

    pub(super) fn account_mut(&mut self, worker: WorkerId) -> Option<&mut Account> {
        self.accounts.get_mut(usize::from(worker.0))?.as_mut()
    }

    /// All open books, with the index that they are about.
    pub(super) fn accounts_and_index(
        &mut self,
    ) -> (impl Iterator<Item = &mut Account>, &mut PrefixIndex) {
        (self.accounts.iter_mut().flatten(), &mut self.index)
    }

    /// The books that a request was booked in, unless the worker has left since.
    fn current(&mut self, claim: Claim) -> Option<&mut Account> {
        self.account_mut(claim.worker)
            .filter(|account| account.epoch == claim.epoch)
    }

    /// What the answers will likely take; never so much that even an empty worker had no room.
    fn expected_output(&self, wanted: &Wanted, largest_cache: u64) -> u64 {
        let typical = self.expected_output_tokens.round().max(1.0) as u64;
        let each = wanted.max_tokens.map_or(typical, |max| max.min(typical));
        let all = each.saturating_mul(u64::from(wanted.answers.max(1)));
        match largest_cache {
            0 => all,
            tokens => all.min(tokens.saturating_sub(wanted.prompt.tokens)),
        }
    }
}

fn whole_blocks(tokens: u64, block_tokens: u64) -> u64 {
    tokens - tokens % block_tokens.max(1)
}

/// The next of a sequence of numbers that look random (xorshift64).
fn scramble(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    state
}
