//! Each in turn, whatever it costs: the baseline.
//!
//! ```text
//! chosen = open workers[turn mod n]
//! ```
//!
//! ```
//! use forespeak_routing::{Draw, Matches, Policy, Priority, RequestView, WorkerId, WorkerView};
//!
//! let workers: Vec<_> = (0..3).map(|id| WorkerView::idle(WorkerId(id), 300_000)).collect();
//! let request = RequestView {
//!     prompt_tokens: 100,
//!     expected_output_tokens: 10,
//!     matches: &Matches::default(),
//!     block_tokens: 16,
//!     priority: Priority::Normal,
//!     session: 1,
//! };
//! let chosen = |turn| {
//!     Policy::RoundRobin.decide(&request, &workers, Draw { turn, random: 0 }).map(|decision| decision.chosen)
//! };
//! assert_eq!(chosen(4), Some(WorkerId(1)));
//! assert_eq!(chosen(5), Some(WorkerId(2)));
//! ```

use super::{Draw, Policy, closed, open};
use crate::decision::{Candidate, Decision, Reason, Terms};
use crate::worker::WorkerView;

pub(super) fn decide(workers: &[WorkerView], draw: Draw) -> Option<Decision> {
    let mut places = 0u64..;
    let candidates: Vec<_> = workers
        .iter()
        .map(|worker| {
            if !open(worker) {
                return closed(worker);
            }
            let place = places.next().unwrap_or(0) as f64;
            Candidate {
                worker: worker.id,
                terms: Terms::default().with("place", place),
                score: place,
                excluded: None,
            }
        })
        .collect();
    let open = places.start;
    let turn = draw.turn.checked_rem(open)? as f64;
    let chosen = candidates
        .iter()
        .find(|candidate| candidate.score == turn)?
        .worker;
    Some(Decision::new(
        Policy::RoundRobin,
        chosen,
        Reason::Turn,
        candidates,
    ))
}
