//! A bounded waiting room, fair between tenants.
//!
//! Priorities are strict: while a high one waits, no normal one goes. Within a priority, tenants take turns by
//! *deficit round robin in tokens*: a visit adds [`QUANTUM_TOKENS`] to a tenant's account, and its first request
//! goes when the account covers it. A tenant with prompts of 100,000 tokens and one with prompts of 100 get the same number of
//! tokens through, not the same number of requests; nobody saves up turns while not waiting.
//!
//! Everyone has a deadline, so nobody waits for an answer that will come too late, and the room is bounded as a
//! whole and per tenant, so that one tenant cannot fill it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::request::Priority;

/// What a visit adds to a tenant's account: about one ordinary chat, so that small requests go at every visit.
pub const QUANTUM_TOKENS: u64 = 4_096;

/// A tenant's number, handed out by whoever knows the tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);

/// How large the waiting room is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Requests in all.
    pub requests: usize,
    /// Requests of one tenant.
    pub per_tenant: usize,
}

impl Default for QueueLimits {
    /// A thousand waiting requests are some seconds of a large fleet; one tenant may have a quarter of them.
    fn default() -> Self {
        Self {
            requests: 1_024,
            per_tenant: 256,
        }
    }
}

/// Why a request may not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueFull {
    /// The room is full.
    Room,
    /// This tenant's part of it is.
    Tenant,
}

/// One waiting request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting<T> {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its class.
    pub priority: Priority,
    /// What it will cost when it goes, in uncached KV tokens.
    pub cost_tokens: u64,
    /// When waiting becomes pointless.
    pub deadline: Duration,
    /// The request itself.
    pub item: T,
}

struct Line<T> {
    waiting: VecDeque<Waiting<T>>,
    account: u64,
}

/// One priority's tenants and whose turn it is.
struct Class<T> {
    lines: BTreeMap<TenantId, Line<T>>,
    turns: VecDeque<TenantId>,
}

/// The waiting room.
///
/// ```
/// use std::time::Duration;
/// use forespeak_routing::Priority;
/// use forespeak_routing::admission::{FairQueue, QueueLimits, TenantId, Waiting};
///
/// let mut queue = FairQueue::new(QueueLimits::default());
/// let deadline = Duration::from_secs(10);
/// let mut push = |tenant, cost_tokens, item| {
///     let tenant = TenantId(tenant);
///     queue.push(Waiting { tenant, priority: Priority::Normal, cost_tokens, deadline, item }).unwrap();
/// };
/// push(1, 4_096, "greedy 1");
/// push(1, 4_096, "greedy 2");
/// push(1, 4_096, "greedy 3");
/// push(2, 4_096, "modest");
///
/// let order: Vec<_> = std::iter::from_fn(|| queue.pop(|_| true)).map(|waiting| waiting.item).collect();
/// assert_eq!(order, ["greedy 1", "modest", "greedy 2", "greedy 3"]);
/// ```
pub struct FairQueue<T> {
    limits: QueueLimits,
    /// High first.
    classes: [Class<T>; 3],
    requests: usize,
    tokens: u64,
}

impl<T> FairQueue<T> {
    /// An empty room.
    pub fn new(limits: QueueLimits) -> Self {
        let class = || Class {
            lines: BTreeMap::new(),
            turns: VecDeque::new(),
        };
        Self {
            limits,
            classes: [class(), class(), class()],
            requests: 0,
            tokens: 0,
        }
    }

    /// Lets a request in at the end of its tenant's line.
    ///
    /// # Errors
    /// If the room, or the tenant's part of it, is full; the request is given back.
    pub fn push(&mut self, waiting: Waiting<T>) -> Result<(), (QueueFull, Waiting<T>)> {
        if self.requests >= self.limits.requests {
            return Err((QueueFull::Room, waiting));
        }
        if self.waiting_of(waiting.tenant) >= self.limits.per_tenant {
            return Err((QueueFull::Tenant, waiting));
        }
        self.requests += 1;
        self.tokens += waiting.cost_tokens;
        self.class_mut(waiting.priority).push(waiting);
        Ok(())
    }

    /// The next that may go. Whether there is room for it is the caller's to say; if not, everybody waits: to let
    /// a smaller one pass would starve the large.
    pub fn pop(&mut self, has_room: impl Fn(&Waiting<T>) -> bool) -> Option<Waiting<T>> {
        let class = self
            .classes
            .iter_mut()
            .find(|class| !class.turns.is_empty())?;
        let waiting = class.pop(has_room)?;
        self.requests -= 1;
        self.tokens -= waiting.cost_tokens;
        Some(waiting)
    }

    /// Takes out everybody whose deadline has passed.
    pub fn expire(&mut self, now: Duration) -> Vec<Waiting<T>> {
        let expired: Vec<_> = self
            .classes
            .iter_mut()
            .flat_map(|class| class.expire(now))
            .collect();
        self.requests -= expired.len();
        self.tokens -= expired
            .iter()
            .map(|waiting| waiting.cost_tokens)
            .sum::<u64>();
        expired
    }

    /// Takes out those whose client has gone.
    pub fn remove_if(&mut self, gone: impl Fn(&T) -> bool) -> usize {
        let removed: Vec<_> = self
            .classes
            .iter_mut()
            .flat_map(|class| class.take(|waiting| gone(&waiting.item)))
            .collect();
        self.requests -= removed.len();
        self.tokens -= removed
            .iter()
            .map(|waiting| waiting.cost_tokens)
            .sum::<u64>();
        removed.len()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.requests
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.requests == 0
    }

    /// Tokens that wait at this priority or above: what a newcomer waits behind.
    pub fn tokens_ahead_of(&self, priority: Priority) -> u64 {
        self.classes[..=rank(priority)]
            .iter()
            .flat_map(|class| class.lines.values())
            .flat_map(|line| &line.waiting)
            .map(|waiting| waiting.cost_tokens)
            .sum()
    }

    /// Tokens that wait in all.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    fn waiting_of(&self, tenant: TenantId) -> usize {
        self.classes
            .iter()
            .filter_map(|class| class.lines.get(&tenant))
            .map(|line| line.waiting.len())
            .sum()
    }

    fn class_mut(&mut self, priority: Priority) -> &mut Class<T> {
        &mut self.classes[rank(priority)]
    }
}

impl<T> Class<T> {
    fn push(&mut self, waiting: Waiting<T>) {
        let tenant = waiting.tenant;
        let line = self.lines.entry(tenant).or_insert_with(|| {
            self.turns.push_back(tenant);
            Line {
                waiting: VecDeque::new(),
                account: 0,
            }
        });
        line.waiting.push_back(waiting);
    }

    fn pop(&mut self, has_room: impl Fn(&Waiting<T>) -> bool) -> Option<Waiting<T>> {
        self.fund_first();
        let tenant = *self.turns.front()?;
        let line = self.lines.get_mut(&tenant)?;
        let first = line.waiting.pop_front_if(|first| has_room(first))?;
        line.account = line.account.saturating_sub(first.cost_tokens);
        if line.waiting.is_empty() {
            self.lines.remove(&tenant);
            self.turns.pop_front();
        } else if line
            .waiting
            .front()
            .is_some_and(|next| next.cost_tokens > line.account)
        {
            self.turns.rotate_left(1);
        }
        Some(first)
    }

    /// Gives out rounds until somebody can afford their first request, and turns to them. All whole rounds that
    /// nobody could use are given out in one, so that a huge request costs no loop.
    fn fund_first(&mut self) {
        let missing = |lines: &BTreeMap<TenantId, Line<T>>, tenant: &TenantId| {
            let line = lines.get(tenant)?;
            Some(
                line.waiting
                    .front()?
                    .cost_tokens
                    .saturating_sub(line.account),
            )
        };
        let rounds = self
            .turns
            .iter()
            .filter_map(|tenant| missing(&self.lines, tenant))
            .map(|missing| missing.div_ceil(QUANTUM_TOKENS))
            .min()
            .unwrap_or(0);
        if rounds > 0 {
            for line in self.lines.values_mut() {
                line.account = line.account.saturating_add(rounds * QUANTUM_TOKENS);
            }
        }
        let ready = self
            .turns
            .iter()
            .position(|tenant| missing(&self.lines, tenant) == Some(0));
        self.turns.rotate_left(ready.unwrap_or(0));
    }

    fn expire(&mut self, now: Duration) -> Vec<Waiting<T>> {
        self.take(|waiting| waiting.deadline <= now)
    }

    fn take(&mut self, leaves: impl Fn(&Waiting<T>) -> bool) -> Vec<Waiting<T>> {
        let mut left = Vec::new();
        for line in self.lines.values_mut() {
            let (leaving, staying) = line.waiting.drain(..).partition(|waiting| leaves(waiting));
            line.waiting = staying;
            left.extend::<VecDeque<_>>(leaving);
        }
        self.lines.retain(|_, line| !line.waiting.is_empty());
        self.turns.retain(|tenant| self.lines.contains_key(tenant));
        left
    }
}

fn rank(priority: Priority) -> usize {
    match priority {
        Priority::High => 0,
        Priority::Normal => 1,
        Priority::Low => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn waiting(tenant: u32, cost_tokens: u64) -> Waiting<u32> {
        Waiting {
            tenant: TenantId(tenant),
            priority: Priority::Normal,
            cost_tokens,
            deadline: Duration::from_secs(10),
            item: tenant,
        }
    }

    fn drain(queue: &mut FairQueue<u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop(|_| true))
            .map(|waiting| waiting.item)
            .collect()
    }

    #[test]
    fn tenants_get_equal_tokens_not_equal_requests() {
        let mut queue = FairQueue::new(QueueLimits::default());
        for _ in 0..10 {
            queue.push(waiting(1, 8 * QUANTUM_TOKENS)).unwrap();
        }
        for _ in 0..80 {
            queue.push(waiting(2, QUANTUM_TOKENS)).unwrap();
        }
        let order = drain(&mut queue);
        let before_last_large = order.iter().rposition(|tenant| *tenant == 1).unwrap();
        let small = order[..before_last_large]
            .iter()
            .filter(|tenant| **tenant == 2)
            .count();
        assert!(
            (70..=80).contains(&small),
            "{small} small ones went while ten large ones did"
        );
    }

    #[test]
    fn high_priority_goes_first_whoever_waits_longer() {
        let mut queue = FairQueue::new(QueueLimits::default());
        queue.push(waiting(1, 10)).unwrap();
        queue
            .push(Waiting {
                priority: Priority::High,
                ..waiting(2, 1_000_000)
            })
            .unwrap();
        queue
            .push(Waiting {
                priority: Priority::Low,
                ..waiting(3, 1)
            })
            .unwrap();
        assert_eq!(drain(&mut queue), [2, 1, 3]);
    }

    #[test]
    fn a_large_request_is_not_starved_by_small_ones() {
        let mut queue = FairQueue::new(QueueLimits::default());
        queue.push(waiting(1, 50_000)).unwrap();
        queue.push(waiting(2, 10)).unwrap();
        let first = queue.pop(|first| first.cost_tokens <= 1_000).unwrap();
        assert_eq!(first.item, 2);
        queue.push(waiting(3, 50_000)).unwrap();
        assert_eq!(queue.pop(|first| first.cost_tokens <= 1_000), None);
        assert_eq!(queue.len(), 2);
    }

    #[test]
    fn one_tenant_cannot_fill_the_room() {
        let mut queue = FairQueue::new(QueueLimits {
            requests: 3,
            per_tenant: 2,
        });
        queue.push(waiting(1, 1)).unwrap();
        queue.push(waiting(1, 1)).unwrap();
        assert_eq!(queue.push(waiting(1, 1)).unwrap_err().0, QueueFull::Tenant);
        queue.push(waiting(2, 1)).unwrap();
        assert_eq!(queue.push(waiting(3, 1)).unwrap_err().0, QueueFull::Room);
    }

    #[test]
    fn nobody_waits_beyond_their_deadline() {
        let mut queue = FairQueue::new(QueueLimits::default());
        queue
            .push(Waiting {
                deadline: Duration::from_secs(1),
                ..waiting(1, 5)
            })
            .unwrap();
        queue.push(waiting(2, 7)).unwrap();
        assert!(queue.expire(Duration::from_millis(999)).is_empty());
        assert_eq!(queue.expire(Duration::from_secs(1))[0].item, 1);
        assert_eq!((queue.len(), queue.tokens()), (1, 7));
    }

    proptest! {
        #[test]
        fn everybody_who_enters_leaves_once_and_the_sums_are_right(
            requests in proptest::collection::vec((0u32..5, 0u64..100_000, 0u8..3, 0u64..20), 0..60),
            expire_at in 0u64..20,
        ) {
            let mut queue = FairQueue::new(QueueLimits::default());
            for (item, (tenant, cost_tokens, class, deadline)) in (0..).zip(&requests) {
                let priority = [Priority::Low, Priority::Normal, Priority::High][usize::from(*class)];
                let deadline = Duration::from_secs(*deadline);
                let tenant = TenantId(*tenant);
                queue.push(Waiting { tenant, priority, cost_tokens: *cost_tokens, deadline, item }).unwrap();
            }
            let gone = queue.remove_if(|item| item % 7 == 0);
            let mut left: Vec<u32> =
                queue.expire(Duration::from_secs(expire_at)).into_iter().map(|waiting| waiting.item).collect();
            left.extend(drain(&mut queue));
            left.sort_unstable();
            left.dedup();
            prop_assert_eq!(left.len() + gone, requests.len());
            prop_assert_eq!((queue.len(), queue.tokens()), (0, 0));
        }
    }
}
