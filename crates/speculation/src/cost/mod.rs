//! What a step costs: `T(batch, drafted, context)`, learnt while it runs.
//!
//! A step verifies one row for each sequence and one for each drafted token, after the draft model (if it
//! drafts) ran some passes. Both parts are learnt by a [`Surface`] of their own:
//! `T = verify(sequences, drafted, context) + sum over passes of draft(sequences in the pass)`.
//!
//! A surface must give good *ratios* between depths on a machine whose steps are now and then ten times
//! slower, with most depths hardly ever tried. In this order:
//! 1. the machine's tempo, what each **cell** (batch, drafted) costs and what a token of context does are unknowns of one filter, so that
//!    every step is held against those just before and behind it, and a slow minute against nobody ([`beliefs`]);
//! 2. a **plane** `a + b batch + c drafted` through the cells, with `b, c >= 0`, answers where there is none;
//! 3. cells correct the plane around them, by `1 / (doubt + distance^2)`: where much is known a cell
//!    speaks for itself, elsewhere it listens to its neighbours;
//! 4. the result is made **monotone** in both directions (pool adjacent violators): more work never seems
//!    cheaper.
//!
//! Plain steps that come soon behind drafts take longer than others, and are set right ([`aftermath`]).
//!
//! Where the machine is clearly slower or faster than when all this was learnt, it is learnt once more, and the old costs are
//! kept for when it is as it was ([`paces`]).
//!
//! # Example
//! ```
//! use std::time::Duration;
//! use forespeak_speculation::{Costs, StepShape};
//!
//! let mut costs = Costs::default();
//! for step in 0..90u64 {
//!     let drafted = [0, 2, 4][step as usize % 3];
//!     let outlier = if step % 17 == 0 { 10.0 } else { 1.0 };
//!     let shape = StepShape { sequences: 1, drafted, ..StepShape::default() };
//!     let took = Duration::from_secs_f64((0.020 + 0.001 * drafted as f64) * outlier);
//!     costs.observe_verify(Duration::from_millis(20 * step), &shape, took);
//! }
//! let of = |drafted| costs.verify(&StepShape { sequences: 1, drafted, ..StepShape::default() });
//! assert!((of(4) / of(0) - 1.2).abs() < 0.03);
//! assert!((of(3) / of(0) - 1.15).abs() < 0.04); // never seen
//! ```

mod aftermath;
mod beliefs;
mod filter;
mod paces;
mod plane;
mod surface;
mod table;

use std::time::Duration;

pub(crate) use aftermath::SOON;
use paces::Paces;
use surface::{Prior, Surface};

/// What one step works on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepShape {
    /// Sequences that decode.
    pub sequences: usize,
    /// Drafted tokens over all of them: rows to verify besides one for each sequence.
    pub drafted: usize,
    /// Tokens in the caches of all of them.
    pub context: usize,
}

/// Costs of verifying and of drafting, in seconds.
#[derive(Debug, Clone)]
pub struct Costs {
    verify: Paces,
    draft: Surface,
    catch_up: RunningMedian,
    /// Planning, for each sequence and one.
    planning: RunningMedian,
}

/// A pass of the draft model against a step of the target, until it is measured.
const DRAFT_RATIO: f64 = 0.15;

impl Default for Costs {
    fn default() -> Self {
        Self {
            verify: Paces::new(Surface::measured_in_plain_steps(Prior {
                batch_slope: 0.08,
                drafted_slope: 0.08,
            })),
            draft: Surface::new(Prior {
                batch_slope: 0.08,
                drafted_slope: 0.0,
            }),
            catch_up: RunningMedian::default(),
            planning: RunningMedian::default(),
        }
    }
}

impl Costs {
    /// Learns what the target's part of a step took that only decoded.
    pub fn observe_verify(&mut self, now: Duration, shape: &StepShape, took: Duration) {
        let took = took.as_secs_f64();
        if shape.sequences == 0 || took <= 0.0 {
            return;
        }
        self.verify.observe(now, shape, took);
    }

    /// Learns what the draft model took for `passes` passes that drafted `drafted` tokens in all, for sequences
    /// of `context` tokens on average.
    pub fn observe_draft(
        &mut self,
        now: Duration,
        passes: usize,
        drafted: usize,
        context: usize,
        took: Duration,
    ) {
        let took = took.as_secs_f64();
        if passes == 0 || drafted == 0 || took <= 0.0 {
            return;
        }
        let sequences = drafted.div_ceil(passes);
        let shape = StepShape {
            sequences,
            drafted: 0,
            context: sequences * context,
        };
        self.draft.observe(now, &shape, took / passes as f64);
    }

    /// Learns what it took the draft model to read tokens that it had missed.
    pub fn observe_catch_up(&mut self, tokens: usize, took: Duration) {
        if tokens > 0 {
            self.catch_up.push(took.as_secs_f64() / tokens as f64);
        }
    }

    /// Seconds for the draft model to read `tokens` tokens before it can draft. Before it was measured: as if eight of
    /// them took as long as a pass. The first time may be a hundred times slower, out of pages that nobody has touched
    /// yet, and nobody would read again to find out: so a few measurements only lower that guess.
    pub fn catch_up(&self, tokens: usize) -> f64 {
        const IN_A_PASS: f64 = 8.0;
        const FEW: usize = 3;
        let measured = self.catch_up.median();
        let token = if self.catch_up.len() >= FEW {
            measured
        } else {
            let guess = self.draft_pass(1, 0) / IN_A_PASS;
            if measured > 0.0 {
                guess.min(measured)
            } else {
                guess
            }
        };
        tokens as f64 * token
    }

    /// Learns what it took to plan a step of so many sequences.
    pub fn observe_planning(&mut self, sequences: usize, took: Duration) {
        let each = took.as_secs_f64() / (sequences + 1) as f64;
        self.planning.push(each);
    }

    /// Seconds that planning takes: a step that nothing is ever drafted in goes without.
    pub fn planning(&self, sequences: usize) -> f64 {
        self.planning.median() * (sequences + 1) as f64
    }

    /// Seconds for the target's part of a step.
    pub fn verify(&self, shape: &StepShape) -> f64 {
        self.verify.present().at(shape)
    }

    /// Seconds for one pass of the draft model over `sequences` sequences.
    pub fn draft_pass(&self, sequences: usize, context: usize) -> f64 {
        if sequences == 0 {
            return 0.0;
        }
        let shape = StepShape {
            sequences,
            drafted: 0,
            context,
        };
        if self.draft.is_empty() {
            return DRAFT_RATIO * self.verify(&shape);
        }
        self.draft.at(&shape)
    }

    /// What is known of [`Costs::verify`] at this very batch and number of drafted tokens, over what it takes
    /// on so noisy a machine: from 1 on it can be relied on.
    pub fn evidence(&self, shape: &StepShape) -> f64 {
        let surface = self.verify.present();
        surface.evidence(shape.sequences, shape.drafted)
    }

    /// Seconds that plain steps behind a draft take longer for it, all together.
    pub(crate) fn left_behind(&self, shape: &StepShape) -> f64 {
        self.verify.present().left_behind(shape)
    }

    /// How uneven steps are that should take the same, as a part of them.
    pub(crate) fn unevenness(&self) -> f64 {
        self.verify.present().unevenness()
    }

    /// Most drafted tokens whose cost is known for so many sequences, or can be guessed at.
    pub(crate) fn reach(&self, sequences: usize) -> usize {
        self.verify.present().reach(sequences)
    }

    /// How long ago a step of this very batch and number of drafted tokens was seen.
    pub fn age(&self, now: Duration, shape: &StepShape) -> Duration {
        let latest = self.verify.present().latest(shape.sequences, shape.drafted);
        now.saturating_sub(latest)
    }

    /// Seconds for the target at each number of drafted tokens from 0 to `most`.
    pub(crate) fn verify_curve(&self, shape: &StepShape, most: usize) -> Vec<f64> {
        self.verify.present().curve(shape, most)
    }
}

/// Median of the latest samples.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunningMedian {
    latest: Vec<f64>,
    next: usize,
}

/// Samples a median is taken of: seven outliers among them change nothing.
const MEDIAN_OF: usize = 15;

impl RunningMedian {
    pub(crate) fn push(&mut self, sample: f64) {
        if self.latest.len() < MEDIAN_OF {
            self.latest.push(sample);
        } else if let Some(oldest) = self.latest.get_mut(self.next) {
            *oldest = sample;
        }
        self.next = (self.next + 1) % MEDIAN_OF;
    }

    pub(crate) fn len(&self) -> usize {
        self.latest.len()
    }

    /// 0 when there is none.
    pub(crate) fn median(&self) -> f64 {
        median(&self.latest)
    }
}

/// The lower median of at most [`MEDIAN_OF`] samples: an even number of them, one of them an outlier, must not answer
/// with it. 0 when there is none.
fn median(samples: &[f64]) -> f64 {
    let mut sorted = [0.0; MEDIAN_OF];
    let count = samples.len().min(MEDIAN_OF);
    let Some(sorted) = sorted.get_mut(..count).filter(|_| count > 0) else {
        return 0.0;
    };
    sorted.copy_from_slice(samples.get(..count).unwrap_or_default());
    *sorted
        .select_nth_unstable_by((count - 1) / 2, f64::total_cmp)
        .1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_reading_that_was_slow_is_not_believed_before_others_say_the_same() {
        let mut costs = Costs::default();
        let shape = StepShape {
            sequences: 1,
            ..StepShape::default()
        };
        costs.observe_verify(Duration::ZERO, &shape, Duration::from_millis(1));
        let guess = costs.catch_up(100);
        costs.observe_catch_up(26, Duration::from_millis(14));
        assert!(costs.catch_up(100) <= guess);
        for _ in 0..3 {
            costs.observe_catch_up(10, Duration::from_millis(1));
        }
        assert!((costs.catch_up(100) - 0.01).abs() < 1e-9);
    }
}
