//! Where the request fits: cached prefix, predicted queueing and KV headroom in one cost. The default.
//!
//! ```text
//! cost     = (prefill * (1 + 0.35 * batch) + steps + pressure) / weight                                 seconds
//!
//! prefill  = (backlog + uncached) / rate          what must be computed before its first token
//! batch    = requests on the worker               each of them stands still while a prompt is computed
//! steps    = ((backlog + uncached) / step budget + 1) * inter-token time
//!                                                 the decoding that shares the steps of that prefill
//! pressure = 2 * uncached / rate * (1 - headroom) new blocks push cached ones out where room is short
//! headroom = w * kv_free + (1 - w) * budget_free  w = 0.8, 0.95 above 2,048 prompt tokens
//!
//! only workers whose free KV tokens hold the uncached prompt and the expected answer;
//! if there is none, the lowest cost decides among all
//!
//! the holder of most of the prompt keeps it while its cost exceeds the lowest by no more than one inter-token time of its own
//! ```
//!
//! That window is the grain of the prediction: a worker takes in a prompt between two steps, and how long a step
//! takes was measured under another load. Without it a chat on slow workers moves for a difference that nobody
//! can know.
//!
//! `kv_free` is the share of the KV cache no request has claimed, `budget_free` the share of the next step's token budget
//! that the backlog leaves; both count what was sent since the last scrape, so a burst spreads although the
//! metrics stand still.
//!
//! Why this form. Cached tokens lower `uncached` and nothing else, so affinity is worth exactly the time it saves:
//! a holder keeps its chats until waiting there costs more than computing them elsewhere, which is the load
//! window, in seconds instead of in a ratio somebody has to tune. Cold prompts cost the same wherever the load is
//! the same, and chance tells equal costs apart. The factor with `batch` is what a router that minimises only the
//! first token's time overlooks: a prompt stalls every answer that runs beside it. LMetric's product is the limit
//! of a large factor; at 0.35 the first token came sooner than under LMetric (P95, both recorded traces, four kinds
//! of workers, every load) while end-to-end times stayed within a few percent of it. On growing chats the two are
//! alike. `docs/decisions` has the figures and the forms that lost. The origin of the project is the headroom
//! score alone.
//!
//! Worked example: three workers that compute 10,000 tokens a second, 15 ms between tokens, steps of 8,192 tokens,
//! and a prompt of 10,000 tokens, of which worker 0 holds 9,600.
//!
//! | worker | state | prefill | steps | pressure | cost |
//! |---|---|---|---|---|---|
//! | 0 | holds 9,600, backlog 2,000, batch 2 | 0.24 s * 1.7 | 0.019 s | 0.001 s | 0.43 s |
//! | 1 | idle | 1 s | 0.033 s | 0 s | 1.03 s |
//! | 2 | KV cache 99 % claimed | | | | does not fit |
//!
//! ```
//! use forespeak_routing::{Draw, Matches, Policy, Priority, RequestView, WorkerId, WorkerView};
//! use forespeak_routing::decision::Exclusion;
//!
//! let mut workers: Vec<_> = (0..3).map(|id| WorkerView::idle(WorkerId(id), 300_000)).collect();
//! workers[0].running = 2;
//! workers[0].ledger.prefill_backlog_tokens = 2_000;
//! workers[2].kv_usage = 0.99;
//! let matches = Matches::from_pairs([(WorkerId(0), 600)]);
//! let request = RequestView {
//!     prompt_tokens: 10_000,
//!     expected_output_tokens: 200,
//!     matches: &matches,
//!     block_tokens: 16,
//!     priority: Priority::Normal,
//!     session: 1,
//! };
//!
//! let decision = Policy::Fit.decide(&request, &workers, Draw::default()).unwrap();
//! assert_eq!(decision.chosen, WorkerId(0));
//! assert!((decision.candidates[0].score - 0.43).abs() < 0.005);
//! assert!((decision.candidates[1].score - 1.03).abs() < 0.005);
//! assert_eq!(decision.candidates[2].excluded, Some(Exclusion::DoesNotFit));
//! assert_eq!(
//!     decision.to_string(),
//!     "fit chose worker 0: it holds 96 % of the prompt and should answer within 0.26 s"
//! );
//!
//! // With 12,000 tokens waiting there, computing everything on worker 1 is faster.
//! workers[0].ledger.prefill_backlog_tokens = 12_000;
//! let decision = Policy::Fit.decide(&request, &workers, Draw::default()).unwrap();
//! assert_eq!(decision.chosen, WorkerId(1));
//! ```

use super::{Draw, Policy, closed, lowest, open};
use crate::decision::{Candidate, Decision, Exclusion, Reason, Terms};
use crate::request::RequestView;
use crate::worker::WorkerView;

/// What a second of prefill costs each request that stands still meanwhile, in seconds of a first token's delay.
const STALL: f64 = 0.35;

/// How many times over a block that pushes out a cached one may have to be paid for.
const PRESSURE: f64 = 2.0;

/// How much of the headroom is KV and not step budget, for short prompts.
const KV_WEIGHT: f64 = 0.8;

/// The same for prompts that are large enough to push others out.
const KV_WEIGHT_LARGE: f64 = 0.95;

/// Where large prompts begin.
const LARGE_PROMPT_TOKENS: u64 = 2_048;

/// Less of a prompt than this being cached is no reason worth telling: a shared system prompt is everywhere.
const TELLING_SHARE: f64 = 0.1;

pub(super) fn decide(
    request: &RequestView<'_>,
    workers: &[WorkerView],
    draw: Draw,
) -> Option<Decision> {
    let mut candidates: Vec<_> = workers
        .iter()
        .map(|worker| {
            if open(worker) {
                weigh(request, worker)
            } else {
                closed(worker)
            }
        })
        .collect();
    let somebody_fits = candidates
        .iter()
        .any(|candidate| candidate.excluded.is_none());
    if !somebody_fits {
        for candidate in &mut candidates {
            candidate.excluded = candidate
                .excluded
                .filter(|why| *why != Exclusion::DoesNotFit);
        }
    }
    let best = within_a_step(request, lowest(&candidates, draw)?, &candidates, workers);
    let chosen = best.worker;
    let reason = if somebody_fits {
        reason(request, best, &candidates)
    } else {
        Reason::NobodyFits
    };
    Some(Decision::new(Policy::Fit, chosen, reason, candidates))
}

/// The worker that holds most of the prompt, where its cost is the lowest as far as can be told; else the one of lowest
/// cost.
fn within_a_step<'a>(
    request: &RequestView<'_>,
    best: &'a Candidate,
    candidates: &'a [Candidate],
    workers: &[WorkerView],
) -> &'a Candidate {
    let held = |candidate: &Candidate| candidate.terms.get("cached_tokens").unwrap_or(0.0);
    let tellingly_more = held(best) + TELLING_SHARE * request.prompt_tokens as f64;
    let costs_the_same = |candidate: &Candidate, worker: &WorkerView| {
        let step = worker.inter_token.as_secs_f64() / worker.weight;
        candidate.excluded.is_none() && candidate.score <= best.score + step
    };
    candidates
        .iter()
        .zip(workers)
        .filter(|(candidate, worker)| {
            held(candidate) > tellingly_more && costs_the_same(candidate, worker)
        })
        .map(|(candidate, _)| candidate)
        .max_by(|a, b| {
            let by_cost = b.score.total_cmp(&a.score);
            held(a).total_cmp(&held(b)).then(by_cost)
        })
        .unwrap_or(best)
}

fn weigh(request: &RequestView<'_>, worker: &WorkerView) -> Candidate {
    let uncached = request.uncached_tokens(worker) as f64;
    let backlog = worker.ledger.prefill_backlog_tokens as f64;
    let batch = f64::from(worker.batch());
    let step_tokens = f64::from(worker.step_tokens.max(1));
    let rate = worker.prefill_rate();

    let prefill = (backlog + uncached) / rate;
    let steps = ((backlog + uncached) / step_tokens + 1.0) * worker.inter_token.as_secs_f64();
    let w = if request.prompt_tokens > LARGE_PROMPT_TOKENS {
        KV_WEIGHT_LARGE
    } else {
        KV_WEIGHT
    };
    let budget_free = (1.0 - backlog / step_tokens).max(0.0);
    let headroom = w * worker.kv_free() + (1.0 - w) * budget_free;
    let pressure = PRESSURE * uncached / rate * (1.0 - headroom);
    let cost = prefill * (1.0 + STALL * batch) + steps + pressure;

    let fits =
        worker.kv_capacity_tokens == 0 || request.kv_demand(worker) <= worker.kv_free_tokens();
    Candidate {
        worker: worker.id,
        terms: Terms::default()
            .with("cached_tokens", request.cached_tokens(worker) as f64)
            .with("prefill", prefill)
            .with("batch", batch)
            .with("steps", steps)
            .with("pressure", pressure)
            .with("headroom", headroom)
            .with("weight", worker.weight)
            .with("metrics_age", worker.metrics_age.as_secs_f64()),
        score: cost / worker.weight,
        excluded: (!fits).then_some(Exclusion::DoesNotFit),
    }
}

fn reason(request: &RequestView<'_>, best: &Candidate, candidates: &[Candidate]) -> Reason {
    let term = |candidate: &Candidate, name| candidate.terms.get(name).unwrap_or(0.0);
    let prompt = request.prompt_tokens.max(1) as f64;
    let cached = term(best, "cached_tokens");
    let seconds = term(best, "prefill") + term(best, "steps");
    let holder = candidates
        .iter()
        .filter(|other| other.excluded != Some(Exclusion::NoTraffic))
        .max_by(|a, b| term(a, "cached_tokens").total_cmp(&term(b, "cached_tokens")));
    match holder {
        Some(holder) if term(holder, "cached_tokens") - cached > TELLING_SHARE * prompt => {
            if holder.excluded == Some(Exclusion::DoesNotFit) {
                Reason::HolderFull {
                    holder: holder.worker,
                }
            } else {
                Reason::Relief {
                    holder: holder.worker,
                    saved: holder.score - best.score,
                }
            }
        }
        _ if cached > TELLING_SHARE * prompt => Reason::Cached {
            share: cached / prompt,
            seconds,
        },
        _ => Reason::Soonest { seconds },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::index::Matches;
    use crate::request::Priority;
    use crate::worker::WorkerId;

    /// Two workers, of which 0 holds 96 of 128 tokens, has this much to do, and is measured to be slower.
    fn chosen(backlog: u64, slower: Duration) -> WorkerId {
        let mut workers: Vec<_> = (0..2)
            .map(|id| WorkerView::idle(WorkerId(id), 10_000))
            .collect();
        for worker in &mut workers {
            worker.prefill_tokens_per_second = 4_000.0;
            worker.inter_token = Duration::from_millis(10);
        }
        workers[0].inter_token += slower;
        workers[0].ledger.prefill_backlog_tokens = backlog;
        let matches = Matches::from_pairs([(WorkerId(0), 3)]);
        let request = RequestView {
            prompt_tokens: 128,
            expected_output_tokens: 40,
            matches: &matches,
            block_tokens: 32,
            priority: Priority::Normal,
            session: 1,
        };
        decide(&request, &workers, Draw::default()).unwrap().chosen
    }

    #[test]
    fn a_holder_keeps_its_chat_for_a_difference_that_is_less_than_a_step() {
        let slow = Duration::from_millis(300);
        assert_eq!(
            chosen(0, slow),
            WorkerId(0),
            "steps were slow under another load"
        );
        assert_eq!(
            chosen(160, Duration::ZERO),
            WorkerId(1),
            "there is too much to do"
        );
        assert_eq!(chosen(0, Duration::ZERO), WorkerId(0));
    }
}
