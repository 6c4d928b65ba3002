//! Fewest requests for its weight.
//!
//! ```text
//! score = (batch + 1) / weight        batch = ours in flight + what others had there at the last scrape
//! ```
//!
//! Counting what was sent since the scrape is what keeps it from herding: without it, half a second of traffic
//! would go to whoever looked emptiest once.
//!
//! ```
//! use forespeak_routing::{Draw, Matches, Policy, Priority, RequestView, WorkerId, WorkerView};
//!
//! let mut workers: Vec<_> = (0..2).map(|id| WorkerView::idle(WorkerId(id), 300_000)).collect();
//! workers[0].running = 3; // score 4
//! workers[1].ledger.in_flight = 2; // score 3
//! let request = RequestView {
//!     prompt_tokens: 100,
//!     expected_output_tokens: 10,
//!     matches: &Matches::default(),
//!     block_tokens: 16,
//!     priority: Priority::Normal,
//!     session: 1,
//! };
//! let decision = Policy::LeastLoaded.decide(&request, &workers, Draw::default()).unwrap();
//! assert_eq!(decision.chosen, WorkerId(1));
//! assert_eq!(decision.candidates[0].score, 3.0);
//! ```

use super::{Draw, Policy, closed, lowest, open};
use crate::decision::{Candidate, Decision, Reason, Terms};
use crate::worker::WorkerView;

pub(super) fn decide(workers: &[WorkerView], draw: Draw) -> Option<Decision> {
    let candidates: Vec<_> = workers
        .iter()
        .map(|worker| {
            if open(worker) {
                weigh(worker)
            } else {
                closed(worker)
            }
        })
        .collect();
    let best = lowest(&candidates, draw)?;
    let chosen = best.worker;
    let batch = best.terms.get("batch").unwrap_or(0.0) as u32;
    Some(Decision::new(
        Policy::LeastLoaded,
        chosen,
        Reason::LeastLoaded { batch },
        candidates,
    ))
}

fn weigh(worker: &WorkerView) -> Candidate {
    let batch = f64::from(worker.batch());
    Candidate {
        worker: worker.id,
        terms: Terms::default()
            .with("batch", batch)
            .with("weight", worker.weight),
        score: (batch + 1.0) / worker.weight,
        excluded: None,
    }
}
