//! What was sent to a worker and has not come back: the part of its load no scrape can show in time.
//!
//! Everything is counted in *uncached KV tokens*: a cached prefix takes no prefill and is already paid for. A
//! request enters the books when it is dispatched and leaves them when its stream ends, however it ends; between
//! two scrapes the books are all that keeps a hundred requests from choosing the same empty-looking worker.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::worker::LedgerView;

/// Requests whose end is remembered until the next scrape. A worker that ends more of them between two scrapes is taken to have
/// a few more in hand than it has.
const MOST_ENDED: usize = 4_096;

/// Names one reservation in a worker's books.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What a request will take from a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Prompt tokens the worker must compute.
    pub uncached_prompt_tokens: u64,
    /// KV tokens it will take: those, and the expected answer.
    pub kv_tokens: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    demand: Demand,
    prefilling: bool,
    unscraped: bool,
}

/// The books about one worker.
///
/// ```
/// use std::time::Duration;
/// use forespeak_routing::admission::{Demand, WorkerLedger};
///
/// let at = Duration::from_millis;
/// let mut ledger = WorkerLedger::default();
/// let ticket = ledger.reserve(Demand { uncached_prompt_tokens: 2_000, kv_tokens: 2_300 }, at(0));
///
/// // A tenth of a second later, a worker that computes 10,000 tokens a second has done half of it.
/// let view = ledger.view(at(100), 10_000.0);
/// assert_eq!(view.prefill_backlog_tokens, 1_000);
/// assert_eq!(view.kv_tokens_since_scrape, 2_300);
///
/// ledger.scraped(at(150)); // from here on the worker's own metrics contain it
/// assert_eq!(ledger.view(at(150), 10_000.0).kv_tokens_since_scrape, 0);
///
/// ledger.first_token(ticket, at(210));
/// ledger.settle(ticket, at(900));
/// let view = ledger.view(at(900), 10_000.0);
/// assert_eq!((view.in_flight, view.prefill_backlog_tokens), (0, 0));
/// ```
#[derive(Default)]
pub struct WorkerLedger {
    entries: BTreeMap<Ticket, Entry>,
    next: u64,
    /// In order of dispatch, which is the order in which workers prefill.
    prefill_order: VecDeque<Ticket>,
    backlog_tokens: u64,
    /// When the request at the head of the prefill queue can have begun.
    head_since: Duration,
    unscraped: VecDeque<(Duration, Ticket)>,
    unscraped_requests: u32,
    unscraped_kv_tokens: u64,
    kv_tokens: u64,
    /// When requests ended that the last scrape had in it, or that the scrape now under way may find.
    ended: VecDeque<Duration>,
    in_last_scrape: u32,
}

impl WorkerLedger {
    /// Enters a request that is being sent now.
    pub fn reserve(&mut self, demand: Demand, now: Duration) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        if self.prefill_order.is_empty() {
            self.head_since = now;
        }
        self.entries.insert(
            ticket,
            Entry {
                demand,
                prefilling: true,
                unscraped: true,
            },
        );
        self.prefill_order.push_back(ticket);
        self.unscraped.push_back((now, ticket));
        self.backlog_tokens += demand.uncached_prompt_tokens;
        self.kv_tokens += demand.kv_tokens;
        self.unscraped_requests += 1;
        self.unscraped_kv_tokens += demand.kv_tokens;
        ticket
    }

    /// Its first token came: its prefill is done. Later calls for the same request change nothing.
    pub fn first_token(&mut self, ticket: Ticket, now: Duration) {
        let Some(entry) = self.entries.get_mut(&ticket) else {
            return;
        };
        if !entry.prefilling {
            return;
        }
        entry.prefilling = false;
        self.backlog_tokens -= entry.demand.uncached_prompt_tokens;
        self.drop_finished_heads(now);
    }

    /// The request is over: answered, failed or aborted. Later calls for the same request change nothing.
    pub fn settle(&mut self, ticket: Ticket, now: Duration) {
        let Some(entry) = self.entries.remove(&ticket) else {
            return;
        };
        self.kv_tokens -= entry.demand.kv_tokens;
        if self.ended.len() == MOST_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(now);
        if entry.unscraped {
            self.unscraped_requests -= 1;
            self.unscraped_kv_tokens -= entry.demand.kv_tokens;
        }
        if entry.prefilling {
            self.backlog_tokens -= entry.demand.uncached_prompt_tokens;
            self.drop_finished_heads(now);
        }
    }

    /// Metrics taken at this time have come in: what was sent before is contained in them.
    pub fn scraped(&mut self, taken_at: Duration) {
        while let Some((_, ticket)) = self.unscraped.pop_front_if(|(sent, _)| *sent <= taken_at) {
            if let Some(entry) = self.entries.get_mut(&ticket) {
                entry.unscraped = false;
                self.unscraped_requests -= 1;
                self.unscraped_kv_tokens -= entry.demand.kv_tokens;
            }
        }
        while self.ended.pop_front_if(|at| *at < taken_at).is_some() {}
        let open_or_ended_since = self.entries.len() + self.ended.len();
        self.in_last_scrape = u32::try_from(open_or_ended_since).unwrap_or(u32::MAX);
    }

    /// What a policy is told. The head of the prefill queue is credited with the work its worker will have done
    /// since it could begin, but never with more than its own size.
    pub fn view(&self, now: Duration, prefill_tokens_per_second: f64) -> LedgerView {
        let head = self
            .prefill_order
            .front()
            .and_then(|ticket| self.entries.get(ticket));
        let head_tokens = head.map_or(0, |entry| entry.demand.uncached_prompt_tokens);
        let done = now.saturating_sub(self.head_since).as_secs_f64() * prefill_tokens_per_second;
        LedgerView {
            in_flight: u32::try_from(self.entries.len()).unwrap_or(u32::MAX),
            sent_since_scrape: self.unscraped_requests,
            kv_tokens_since_scrape: self.unscraped_kv_tokens,
            prefill_backlog_tokens: self.backlog_tokens - head_tokens.min(done as u64),
            in_last_scrape: self.in_last_scrape,
        }
    }

    /// KV tokens of everything in flight.
    pub fn kv_tokens(&self) -> u64 {
        self.kv_tokens
    }

    /// Whether nothing is in flight: what every test and chaos run must end with.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn drop_finished_heads(&mut self, now: Duration) {
        let entries = &self.entries;
        let waits = |ticket: &Ticket| entries.get(ticket).is_some_and(|entry| entry.prefilling);
        let before = self.prefill_order.front().copied();
        while self
            .prefill_order
            .pop_front_if(|ticket| !waits(ticket))
            .is_some()
        {}
        if self.prefill_order.front().copied() != before {
            self.head_since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RATE: f64 = 10_000.0;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn demand(tokens: u64) -> Demand {
        Demand {
            uncached_prompt_tokens: tokens,
            kv_tokens: tokens + 100,
        }
    }

    #[test]
    fn a_slow_head_is_credited_with_no_more_than_itself() {
        let mut ledger = WorkerLedger::default();
        ledger.reserve(demand(1_000), at(0));
        ledger.reserve(demand(5_000), at(0));
        assert_eq!(ledger.view(at(60_000), RATE).prefill_backlog_tokens, 5_000);
    }

    #[test]
    fn the_next_in_line_is_credited_from_when_its_turn_came() {
        let mut ledger = WorkerLedger::default();
        let first = ledger.reserve(demand(1_000), at(0));
        ledger.reserve(demand(5_000), at(0));
        ledger.first_token(first, at(300));
        assert_eq!(ledger.view(at(400), RATE).prefill_backlog_tokens, 4_000);
    }

    #[test]
    fn what_is_sent_while_a_scrape_is_under_way_is_not_taken_to_be_in_it() {
        let mut ledger = WorkerLedger::default();
        ledger.reserve(demand(1_000), at(100));
        ledger.reserve(demand(1_000), at(200));
        ledger.scraped(at(150));
        assert_eq!(ledger.view(at(250), RATE).sent_since_scrape, 1);
    }

    #[test]
    fn a_scrape_may_have_in_it_what_ended_while_it_was_under_way_and_nothing_older() {
        let mut ledger = WorkerLedger::default();
        let tickets: Vec<_> = (0..3).map(|_| ledger.reserve(demand(10), at(0))).collect();
        ledger.settle(tickets[0], at(100));
        ledger.settle(tickets[1], at(200));
        ledger.scraped(at(150));
        assert_eq!(ledger.view(at(250), RATE).in_last_scrape, 2);
        ledger.settle(tickets[2], at(300));
        // It ended, and that page still has it.
        let view = ledger.view(at(300), RATE);
        assert_eq!((view.in_flight, view.in_last_scrape), (0, 2));
        ledger.scraped(at(400));
        assert_eq!(ledger.view(at(450), RATE).in_last_scrape, 0);
    }

    proptest! {
        #[test]
        fn the_books_are_the_sum_of_what_is_open_and_end_empty(
            ops in proptest::collection::vec((0u8..4, 0usize..20, 0u64..5_000), 0..200),
        ) {
            let mut ledger = WorkerLedger::default();
            let mut tickets = Vec::new();
            let mut open: BTreeMap<Ticket, u64> = BTreeMap::new();
            for (tick, (op, which, tokens)) in (0..).zip(ops) {
                let ticket = tickets.get(which).copied();
                match (op, ticket) {
                    (0, _) => {
                        let ticket = ledger.reserve(demand(tokens), at(tick));
                        tickets.push(ticket);
                        open.insert(ticket, tokens + 100);
                    }
                    (1, Some(ticket)) => ledger.first_token(ticket, at(tick)),
                    (2, Some(ticket)) => {
                        ledger.settle(ticket, at(tick));
                        open.remove(&ticket);
                    }
                    _ => ledger.scraped(at(tick)),
                }
                prop_assert_eq!(ledger.kv_tokens(), open.values().sum::<u64>());
                let view = ledger.view(at(tick), RATE);
                prop_assert_eq!(view.in_flight as usize, open.len());
                prop_assert!(view.kv_tokens_since_scrape <= ledger.kv_tokens());
                prop_assert!(view.prefill_backlog_tokens <= ledger.kv_tokens());
            }
            for ticket in tickets {
                ledger.settle(ticket, at(1_000));
            }
            ledger.scraped(at(1_000));
            prop_assert!(ledger.is_empty() && ledger.prefill_order.is_empty() && ledger.unscraped.is_empty());
            ledger.scraped(at(1_001));
            prop_assert_eq!(ledger.view(at(1_000), RATE), LedgerView::default());
        }
    }
}
