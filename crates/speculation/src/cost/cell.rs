//! The latest samples of one (batch, drafted).

use std::time::Duration;

use super::median;

/// Samples kept. More than the tempo looks at: when the machine slows down the tempo must notice before the
/// cell believes it.
pub(super) const KEPT: usize = 41;

/// Samples left of a cell whose costs are only guessed at.
const GUESSED: usize = 3;

/// Age at which a sample counts half. Costs belong to the machine and move slowly.
const HALF_LIFE_SECONDS: f64 = 60.0;

#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) batch: f64,
    pub(super) drafted: f64,
    pub(super) context: f64,
    pub(super) seconds: f64,
}

/// Samples and where they stand.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    samples: Vec<Sample>,
    next: usize,
    latest: Duration,
    usual: Usual,
}

/// The middle of the samples, as of when it was last asked for: sorting them takes longer than anything else in a step.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usual {
    /// Seconds at context 0.
    pub(super) seconds: f64,
    pub(super) context: f64,
}

impl Cell {
    pub(super) fn new() -> Self {
        Self {
            samples: Vec::with_capacity(KEPT),
            next: 0,
            latest: Duration::ZERO,
            usual: Usual::default(),
        }
    }

    pub(super) fn push(&mut self, now: Duration, sample: Sample) {
        if self.samples.len() < KEPT {
            self.samples.push(sample);
        } else if let Some(oldest) = self.samples.get_mut(self.next) {
            *oldest = sample;
        }
        self.next = (self.next + 1) % KEPT;
        self.latest = now;
    }

    /// Keeps only a few of its samples, changed to what they may be from now on.
    pub(super) fn guess(&mut self, change: impl Fn(f64) -> f64) {
        let newest = (self.next + KEPT - 1) % KEPT;
        self.samples = (0..GUESSED.min(self.samples.len()))
            .filter_map(|back| self.samples.get((newest + KEPT - back) % KEPT))
            .map(|sample| Sample {
                seconds: change(sample.seconds),
                ..*sample
            })
            .collect();
        self.next = self.samples.len();
    }

    /// Something was seen here, and not learnt from.
    pub(super) fn see(&mut self, now: Duration) {
        self.latest = now;
    }

    /// Finds the middle of its samples, if each token of context costs `context_slope`.
    pub(super) fn refresh(&mut self, context_slope: f64) {
        // However long the context, a part of a step has nothing to do with it.
        const LEAST: f64 = 0.3;
        let seconds = self
            .samples
            .iter()
            .map(|s| (s.seconds - context_slope * s.context).max(LEAST * s.seconds));
        self.usual = Usual {
            seconds: median(seconds),
            context: median(self.samples.iter().map(|s| s.context)),
        };
    }

    /// The middle of its samples when it was last refreshed; `None` before.
    pub(super) fn usual(&self) -> Option<Usual> {
        (self.usual.seconds > 0.0).then_some(self.usual)
    }

    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether more samples only replace others.
    pub(super) fn is_full(&self) -> bool {
        self.samples.len() >= KEPT
    }

    /// Where its samples stand on average: a cell covers up to a quarter of an octave.
    pub(super) fn place(&self) -> (f64, f64) {
        let count = self.samples.len().max(1) as f64;
        let batch: f64 = self.samples.iter().map(|s| s.batch).sum();
        let drafted: f64 = self.samples.iter().map(|s| s.drafted).sum();
        (batch / count, drafted / count)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Samples, discounted by the age of the latest.
    pub(super) fn evidence(&self, now: Duration) -> f64 {
        let age = now.saturating_sub(self.latest).as_secs_f64();
        self.samples.len() as f64 * (-age / HALF_LIFE_SECONDS).exp2()
    }

    pub(super) fn latest(&self) -> Duration {
        self.latest
    }
}
