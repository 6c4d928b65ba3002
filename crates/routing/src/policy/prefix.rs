//! The longest cached prefix, within a load window.
//!
//! ```text
//! window = batch <= 1.5 * mean batch + 4
//! score  = uncached prompt tokens, then batch / weight, then chance
//! chosen = lowest score within the window
//! ```
//!
//! A worker beyond the window loses this request, not its affinity: the next best holder gets it, and only if
//! nobody else holds a part does it go to the least loaded. Cold prompts score the same everywhere, so they
//! spread by load and chance and never by position.
//!
//! ```
//! use forespeak_routing::{Draw, Matches, Policy, Priority, RequestView, WorkerId, WorkerView};
//!
//! let mut workers: Vec<_> = (0..3).map(|id| WorkerView::idle(WorkerId(id), 300_000)).collect();
//! let matches = Matches::from_pairs([(WorkerId(0), 60), (WorkerId(1), 50)]);
//! let request = RequestView {
//!     prompt_tokens: 1_000,
//!     expected_output_tokens: 10,
//!     matches: &matches,
//!     block_tokens: 16,
//!     priority: Priority::Normal,
//!     session: 1,
//! };
//! let chosen = |workers: &[WorkerView]| Policy::Prefix.decide(&request, workers, Draw::default()).unwrap().chosen;
//! assert_eq!(chosen(&workers), WorkerId(0)); // 1000 - 60 * 16 = 40 new tokens
//!
//! workers[0].running = 30; // the mean is 10, the window ends at 19
//! assert_eq!(chosen(&workers), WorkerId(1)); // 200 new tokens
//! ```

use super::{Draw, Policy, closed, lowest, open};
use crate::decision::{Candidate, Decision, Exclusion, Reason, Terms};
use crate::request::RequestView;
use crate::worker::WorkerView;

/// Half again the mean is an imbalance worth giving a hit away for.
const WINDOW_FACTOR: f64 = 1.5;
/// A few requests more or less are noise on an idle fleet.
const WINDOW_SLACK: f64 = 4.0;

pub(super) fn decide(
    request: &RequestView<'_>,
    workers: &[WorkerView],
    draw: Draw,
) -> Option<Decision> {
    let loads: Vec<f64> = workers
        .iter()
        .filter(|w| open(w))
        .map(|w| f64::from(w.batch()) / w.weight)
        .collect();
    let window =
        WINDOW_FACTOR * loads.iter().sum::<f64>() / loads.len().max(1) as f64 + WINDOW_SLACK;
    let candidates: Vec<_> = workers
        .iter()
        .map(|worker| {
            if open(worker) {
                weigh(request, worker, window)
            } else {
                closed(worker)
            }
        })
        .collect();
    let best = lowest(&candidates, draw)?;
    let chosen = best.worker;
    let cached = best.terms.get("cached_tokens").unwrap_or(0.0);
    let reason = if cached > 0.0 {
        Reason::Cached {
            share: cached / request.prompt_tokens.max(1) as f64,
            seconds: seconds(request, workers, best),
        }
    } else {
        Reason::LeastLoaded {
            batch: best.terms.get("batch").unwrap_or(0.0) as u32,
        }
    };
    Some(Decision::new(Policy::Prefix, chosen, reason, candidates))
}

fn weigh(request: &RequestView<'_>, worker: &WorkerView, window: f64) -> Candidate {
    let batch = f64::from(worker.batch()) / worker.weight;
    Candidate {
        worker: worker.id,
        terms: Terms::default()
            .with("cached_tokens", request.cached_tokens(worker) as f64)
            .with("batch", batch)
            .with("window", window),
        // The load only ever decides between equal numbers of tokens.
        score: request.uncached_tokens(worker) as f64 + batch / (batch + 1.0),
        excluded: (batch > window).then_some(Exclusion::Overloaded),
    }
}

fn seconds(request: &RequestView<'_>, workers: &[WorkerView], candidate: &Candidate) -> f64 {
    workers
        .iter()
        .find(|worker| worker.id == candidate.worker)
        .map_or(0.0, |worker| {
            request.uncached_tokens(worker) as f64 / worker.prefill_rate()
        })
}
