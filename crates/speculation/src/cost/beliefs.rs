//! What is believed of a machine: how fast it is now, and what each kind of step costs against others.
//!
//! A step takes `tempo * (cost of its kind + context)`. Only such products are ever seen, and the tempo wanders all the time: by some
//! percent within twenty steps, by half when virtual cores are moved. So all of them are unknowns of one [`Filter`], as
//! logarithms. It follows that
//! - a kind of step is held against those that ran just before and behind it, whatever the machine was like when others were
//!   learnt: a slow minute is not held against the depth that happened to run in it;
//! - a kind that runs alone for long says nothing of itself, and does not drift away from kinds that nobody has seen meanwhile;
//! - how well a difference is known is known too.
//!
//! A step that took ten times as long as others of its kind says nothing. Where step after step is far off the same way, the
//! machine has changed, and the tempo follows at once.

use std::time::Duration;

use super::filter::{Filter, Term};

/// Unevenness before it is known, how fast it is learnt, and what one step counts at most.
const FIRST_SPREAD: f64 = 0.1;
const SPREAD_RATE: f64 = 0.02;
const LARGEST_DISTANCE: f64 = 0.5;

/// A machine that seems to have none may still have a slow moment.
const LEAST_SPREAD: f64 = 0.01;

/// Deviation of what is as uneven as this mean distance.
const DEVIATIONS: f64 = 1.25;

/// Variance that the tempo gains from step to step, against that of a single step: it follows within about six of them.
const WANDERS: f64 = 0.03;

/// Steps that a pause counts for at most.
const LONGEST_PAUSE: f64 = 30.0;

/// Deviation that costs gain against each other in a second, if something was seen in it: what is known of another pace does not
/// age until it comes back.
const COSTS_CHANGE: f64 = 0.012;
const LONGEST_SIGHT: f64 = 0.1;

/// A cost of which nothing is known but what others make likely.
pub(super) const GUESSED: f64 = 0.25;

/// A step further off than so many deviations is none to learn from, but so many of them in a row, the same way, are a machine that
/// has changed.
const SURPRISE: f64 = 2.5;
const SURPRISES: u32 = 4;

/// How much more variance a cost has than was believed if it may be to blame.
const BLAME: f64 = 8.0;

/// Context is counted in parts of the first step for each token: the deviation of a first guess of nothing.
const CONTEXT_UNIT: f64 = 1e-4;
const CONTEXT_DEVIATION: f64 = 2.0;

/// A token never costs as much as a step.
const MOST_FOR_CONTEXT: f64 = 1.0 / CONTEXT_UNIT;

/// Logarithms beyond which nothing is believed: whatever was measured, all that follows from it is a number.
const BEYOND: f64 = 30.0;

/// Unknowns that are always there.
const TEMPO: usize = 0;
const CONTEXT: usize = 1;

/// A place among the unknowns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unknown(usize);

/// A step as it was measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    pub(super) cost: Unknown,
    /// Tokens.
    pub(super) context: f64,
    pub(super) seconds: f64,
}

#[derive(Debug, Clone)]
pub(super) struct Beliefs {
    filter: Filter,
    /// Mean distance of a step from what was expected, in logarithms.
    spread: f64,
    /// Seconds that a unit of context takes for a token.
    context_unit: f64,
    surprise: Surprise,
    /// The kind of the last step, and when it ran.
    last: Option<(Unknown, Duration)>,
}

/// Steps in a row that were far off.
#[derive(Debug, Clone, Copy, Default)]
struct Surprise {
    steps: u32,
    /// Which way.
    way: f64,
    /// Whether the first of them was of another kind than the step before.
    other_kind: bool,
}

impl Default for Beliefs {
    fn default() -> Self {
        let mut filter = Filter::default();
        filter.add(0.0, 0.0);
        filter.add(0.0, CONTEXT_DEVIATION);
        Self {
            filter,
            spread: FIRST_SPREAD,
            context_unit: 0.0,
            surprise: Surprise::default(),
            last: None,
        }
    }
}

impl Beliefs {
    /// How much longer steps take now than when their costs were learnt.
    pub(super) fn tempo(&self) -> f64 {
        self.value(Unknown(TEMPO))
    }

    /// The machine is believed to be as fast as it once was.
    pub(super) fn return_to(&mut self, tempo: f64) {
        self.filter.set_mean(TEMPO, tempo.ln());
        self.surprise = Surprise::default();
    }

    /// How uneven steps are that should take the same, as a part of them.
    pub(super) fn spread(&self) -> f64 {
        self.spread
    }

    /// Whether the machine seems to be changing just now.
    pub(super) fn is_surprised(&self) -> bool {
        self.surprise.steps > 0
    }

    /// Seconds for a token of context, at tempo 1.
    pub(super) fn context(&self) -> f64 {
        self.context_unit * self.filter.mean(CONTEXT)
    }

    /// A cost that is guessed at, of a context of nothing.
    pub(super) fn guess(&mut self, seconds: f64) -> Unknown {
        if self.context_unit == 0.0 {
            self.context_unit = CONTEXT_UNIT * seconds;
        }
        Unknown(self.filter.add(seconds.ln(), GUESSED))
    }

    /// The same in the place of one that is not of use any more.
    pub(super) fn guess_again(&mut self, place: Unknown, seconds: f64, deviation: f64) {
        self.filter.forget(place.0, seconds.ln(), deviation);
    }

    /// Seconds at tempo 1, without context.
    pub(super) fn value(&self, place: Unknown) -> f64 {
        self.logarithm(place).exp()
    }

    fn logarithm(&self, place: Unknown) -> f64 {
        self.filter.mean(place.0).clamp(-BEYOND, BEYOND)
    }

    /// Variances of what steps of these costs and contexts would take now, each beyond that of the best-known of them.
    pub(super) fn doubts(&self, steps: impl Iterator<Item = (Unknown, f64)>) -> Vec<f64> {
        let variance = |(cost, context)| self.filter.variance(&self.terms(cost, context));
        let mut variances: Vec<f64> = steps.map(variance).collect();
        let least = variances.iter().copied().fold(f64::MAX, f64::min);
        variances.iter_mut().for_each(|variance| *variance -= least);
        variances
    }

    /// What the logarithm of a step's time is made of, near to what is believed now.
    fn terms(&self, cost: Unknown, context: f64) -> [Term; 3] {
        let seconds = self.value(cost);
        let whole = seconds + self.context() * context;
        [
            (TEMPO, 1.0),
            (cost.0, seconds / whole),
            (CONTEXT, self.context_unit * context / whole),
        ]
    }

    /// Learns from a step.
    pub(super) fn observe(&mut self, now: Duration, step: &Measured) {
        let noise = self.noise();
        let other_kind = self.pass(now, step, noise);
        let cost = self.value(step.cost);
        let context = self.context() * step.context;
        let expected = self.logarithm(Unknown(TEMPO)) + (cost + context).ln();
        let terms = self.terms(step.cost, step.context);
        let off = step.seconds.ln() - expected;
        self.spread += SPREAD_RATE * (off.abs().min(LARGEST_DISTANCE) - self.spread);
        let most = SURPRISE * (self.filter.variance(&terms) + noise).sqrt();
        let off = if off.abs() <= most {
            self.surprise = Surprise::default();
            off
        } else if let Some(off) = self.of_a_surprise(step.cost, off, most, other_kind) {
            off
        } else {
            return;
        };
        self.filter.learn(&terms, off, noise);
        let of_context = self.filter.mean(CONTEXT).clamp(0.0, MOST_FOR_CONTEXT);
        self.filter.set_mean(CONTEXT, of_context);
    }

    /// What is to be learnt from a step that is further off than `most`, if anything: perhaps nothing, perhaps a machine that has
    /// changed, and perhaps what is known of its kind.
    fn of_a_surprise(
        &mut self,
        cost: Unknown,
        off: f64,
        most: f64,
        other_kind: bool,
    ) -> Option<f64> {
        let believed = self.surprise.is_believed(off, other_kind);
        if believed {
            self.filter.loosen(TEMPO, off * off);
        }
        if !self.surprise.other_kind {
            return believed.then_some(off);
        }
        if believed {
            // The less is known of the kind, the more it may be to blame.
            let known_within = self.filter.variance(&[(cost.0, 1.0)]);
            self.filter.loosen(cost.0, BLAME * known_within);
        }
        Some(off.clamp(-most, most))
    }

    /// Time has passed since the last step; gives whether that was of another kind.
    fn pass(&mut self, now: Duration, step: &Measured, noise: f64) -> bool {
        let (kind, at) = self
            .last
            .replace((step.cost, now))
            .unwrap_or((step.cost, now));
        let seconds = now.saturating_sub(at).as_secs_f64();
        let steps = (seconds / step.seconds).clamp(1.0, LONGEST_PAUSE);
        self.filter.loosen(TEMPO, WANDERS * noise * steps);
        self.filter.loosen_all(
            CONTEXT + 1,
            COSTS_CHANGE * COSTS_CHANGE * seconds.min(LONGEST_SIGHT),
        );
        kind != step.cost
    }

    /// Variance of a single step.
    fn noise(&self) -> f64 {
        let deviation = DEVIATIONS * self.spread.max(LEAST_SPREAD);
        deviation * deviation
    }
}

impl Surprise {
    /// One more step was far off; whether there were enough of them to believe that something has changed.
    fn is_believed(&mut self, off: f64, other_kind: bool) -> bool {
        if self.steps == 0 || off.signum() != self.way {
            *self = Self {
                steps: 0,
                way: off.signum(),
                other_kind,
            };
        }
        self.steps += 1;
        self.steps >= SURPRISES
    }
}
