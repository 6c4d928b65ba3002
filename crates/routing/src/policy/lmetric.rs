//! New prompt tokens times batch size (LMetric, arXiv 2603.15202): no weights at all.
//!
//! ```text
//! score = (prefill backlog + uncached prompt tokens) * (batch + 1) / weight
//! ```
//!
//! The first factor is the work a request waits for and brings; the second is how many others that work slows
//! down. Multiplied, neither needs a weight. The baseline that any weighted score must beat.
//!
//! ```
//! use forespeak_routing::{Draw, Matches, Policy, Priority, RequestView, WorkerId, WorkerView};
//!
//! let mut workers: Vec<_> = (0..2).map(|id| WorkerView::idle(WorkerId(id), 300_000)).collect();
//! workers[0].running = 4;
//! workers[1].running = 1;
//! let matches = Matches::from_pairs([(WorkerId(0), 50)]);
//! let request = RequestView {
//!     prompt_tokens: 1_000,
//!     expected_output_tokens: 10,
//!     matches: &matches,
//!     block_tokens: 16,
//!     priority: Priority::Normal,
//!     session: 1,
//! };
//! let decision = Policy::Lmetric.decide(&request, &workers, Draw::default()).unwrap();
//! assert_eq!(decision.chosen, WorkerId(0));
//! assert_eq!(decision.candidates[0].score, 200.0 * 5.0);
//! assert_eq!(decision.candidates[1].score, 1_000.0 * 2.0);
//! ```

use super::{Draw, Policy, closed, lowest, open};
use crate::decision::{Candidate, Decision, Reason, Terms};
use crate::request::RequestView;
use crate::worker::WorkerView;

pub(super) fn decide(
    request: &RequestView<'_>,
    workers: &[WorkerView],
    draw: Draw,
) -> Option<Decision> {
    let candidates: Vec<_> = workers
        .iter()
        .map(|worker| {
            if open(worker) {
                weigh(request, worker)
            } else {
                closed(worker)
            }
        })
        .collect();
    let chosen = lowest(&candidates, draw)?.worker;
    Some(Decision::new(
        Policy::Lmetric,
        chosen,
        Reason::SmallestProduct,
        candidates,
    ))
}

fn weigh(request: &RequestView<'_>, worker: &WorkerView) -> Candidate {
    let tokens = (worker.ledger.prefill_backlog_tokens + request.uncached_tokens(worker)) as f64;
    let batch = f64::from(worker.batch()) + 1.0;
    Candidate {
        worker: worker.id,
        terms: Terms::default()
            .with("new_tokens", tokens)
            .with("batch", batch),
        score: tokens * batch / worker.weight,
        excluded: None,
    }
}
