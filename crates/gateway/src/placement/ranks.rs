//! Which data-parallel rank of a worker gets a request.
//!
//! Ranks behind one address have a cache each. A worker gives a request that says nothing to the rank that has least to do; so a
//! prompt that one of them holds is found there by chance only. The gateway therefore names the rank that holds most of it, as
//! long as that rank is not far ahead of its share of the worker's requests: a prompt that everybody sends must come to
//! lie on all of them. Whatever no rank holds is left to the worker.

use fleet::WorkerId;
use routing::Matches;

/// Requests by which a rank may be ahead of its share.
const LEAD: usize = 4;

/// Requests in flight that were sent to a rank by name.
#[derive(Debug)]
pub(super) struct Ranks {
    named: Vec<usize>,
}

impl Ranks {
    pub(super) fn new(count: u16) -> Self {
        Self {
            named: vec![0; usize::from(count)],
        }
    }

    /// The rank to name for a prompt, on a worker with so many requests in flight.
    pub(super) fn choose(
        &self,
        matches: &Matches,
        worker: WorkerId,
        in_flight: usize,
    ) -> Option<u16> {
        let rank = matches.best_rank(worker)?;
        let named = self.named.get(usize::from(rank))?;
        let share = in_flight / self.named.len();
        (*named < share + LEAD).then_some(rank)
    }

    pub(super) fn begin(&mut self, rank: Option<u16>) {
        if let Some(named) = self.of(rank) {
            *named += 1;
        }
    }

    pub(super) fn end(&mut self, rank: Option<u16>) {
        if let Some(named) = self.of(rank) {
            *named = named.saturating_sub(1);
        }
    }

    fn of(&mut self, rank: Option<u16>) -> Option<&mut usize> {
        self.named.get_mut(usize::from(rank?))
    }
}
