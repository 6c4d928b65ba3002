//! The same session to the same worker, within a bound on its load.
//!
//! ```text
//! list(session) = open workers ordered by rendezvous hash of (session, worker), weighted
//! bound         = ceil(1.25 * (requests on all open workers + 1) * weight / sum of weights)
//! chosen        = first on the list with batch < bound
//! ```
//!
//! Rendezvous hashing moves only the sessions of a worker that leaves; the bound (consistent hashing with
//! bounded loads, Mirrokni et al.) keeps a popular session from drowning its home. For where nothing better
//! than a user id is known.
//!
//! ```
//! use forespeak_routing::{Draw, Matches, Policy, Priority, RequestView, WorkerId, WorkerView};
//!
//! let mut workers: Vec<_> = (0..4).map(|id| WorkerView::idle(WorkerId(id), 300_000)).collect();
//! let request = RequestView {
//!     prompt_tokens: 100,
//!     expected_output_tokens: 10,
//!     matches: &Matches::default(),
//!     block_tokens: 16,
//!     priority: Priority::Normal,
//!     session: 77,
//! };
//! let home = Policy::Sticky.decide(&request, &workers, Draw::default()).unwrap().chosen;
//!
//! // One more elsewhere changes nothing: the bound is ceil(1.25 * 2 / 4) = 1 and home is at 0.
//! workers[(usize::from(home.0) + 1) % 4].running = 1;
//! assert_eq!(Policy::Sticky.decide(&request, &workers, Draw::default()).unwrap().chosen, home);
//!
//! // With 9 at home the bound is ceil(1.25 * 11 / 4) = 4: the session overflows to the next on its list.
//! workers[usize::from(home.0)].running = 9;
//! assert_ne!(Policy::Sticky.decide(&request, &workers, Draw::default()).unwrap().chosen, home);
//! ```

use super::{Policy, closed, open};
use crate::decision::{Candidate, Decision, Exclusion, Reason, Terms};
use crate::hash::mix;
use crate::request::RequestView;
use crate::worker::WorkerView;

/// A home may have a quarter more than its fair share before its sessions overflow.
const OVERLOAD: f64 = 1.25;

pub(super) fn decide(request: &RequestView<'_>, workers: &[WorkerView]) -> Option<Decision> {
    let (load, weights) = workers
        .iter()
        .filter(|worker| open(worker))
        .fold((1.0, 0.0), |(load, weights), worker| {
            (load + f64::from(worker.batch()), weights + worker.weight)
        });
    let candidates: Vec<_> = workers
        .iter()
        .map(|worker| {
            if !open(worker) {
                return closed(worker);
            }
            let bound = (OVERLOAD * load * worker.weight / weights).ceil();
            let batch = f64::from(worker.batch());
            Candidate {
                worker: worker.id,
                terms: Terms::default().with("batch", batch).with("bound", bound),
                score: distance(request.session, worker),
                excluded: (batch >= bound).then_some(Exclusion::Overloaded),
            }
        })
        .collect();
    let chosen = candidates
        .iter()
        .filter(|candidate| candidate.excluded.is_none())
        .min_by(|a, b| a.score.total_cmp(&b.score))?;
    let skipped = candidates
        .iter()
        .filter(|other| other.excluded == Some(Exclusion::Overloaded) && other.score < chosen.score)
        .count();
    let reason = if skipped == 0 {
        Reason::Home
    } else {
        Reason::Overflow { skipped }
    };
    let chosen = chosen.worker;
    Some(Decision::new(Policy::Sticky, chosen, reason, candidates))
}

/// Weighted rendezvous: the smallest of exponential draws with rate `weight`, one draw per session and worker.
pub(super) fn distance(session: u64, worker: &WorkerView) -> f64 {
    let lot = mix(session ^ mix(u64::from(worker.id.0) + 1));
    // 53 bits make a uniform number in (0, 1].
    let uniform = ((lot >> 11) + 1) as f64 / (1u64 << 53) as f64;
    -uniform.ln() / worker.weight
}
