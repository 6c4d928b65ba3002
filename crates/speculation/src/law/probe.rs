//! Trying what is not known, for a bounded price.
//!
//! A law that only does what it believes best never learns that it is wrong: at depth 0 no draft is ever
//! seen, and at depth 4 no plain step. So now and then one step does something else. The price comes out of
//! an account that fills with [`BUDGET`] of the time: a probe is made when the account can pay what it is
//! expected to lose, and is charged what it did lose. A probe that gained pays in. So losses stay below the
//! budget whatever happens, and where drafts have begun to succeed probes follow each other at once: a
//! shift is noticed after one probe and believed after a few. What the draft model had to read before a first probe is
//! most of its price; it is a debt that later income pays, and that keeps all but the sequence waiting that was read for.
//!
//! Charges are by expected times and real tokens: one slow step would else silence the probes for a minute.

use std::time::Duration;

/// Share of the time that probes may lose.
const BUDGET: f64 = 0.01;

/// Least time after a probe that failed, or steps where those are short.
const AFTER_FAILURE: Pause = Pause {
    time: Duration::from_millis(150),
    steps: 24,
};

/// The same between probes of depths next to the best one: they confirm more often than they surprise.
const BETWEEN_NEIGHBOURS: Pause = Pause {
    time: Duration::from_millis(600),
    steps: 96,
};

/// The account holds at most so many of the last probe's price: saved-up probes are worth less than fresh
/// ones.
const MOST_SAVED: f64 = 3.0;

/// A longer pause between steps is idleness, and fills no account.
const LONGEST_STEP: f64 = 0.5;

/// A pause that is over when the time or the steps have passed, whichever is first.
#[derive(Debug, Clone, Copy)]
struct Pause {
    time: Duration,
    steps: u64,
}

/// When a pause is over.
#[derive(Debug, Clone, Copy, Default)]
struct Until {
    time: Duration,
    step: u64,
}

/// A probe that runs in the present step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pending {
    /// Who drafts deeper than planned.
    pub(super) sequence: u64,
    /// Tokens it was expected to have accepted without the probe.
    pub(super) usual: f64,
    /// Seconds the probe adds to the step.
    pub(super) seconds: f64,
    /// Tokens per second: what a second is worth.
    pub(super) price: f64,
}

/// The account.
#[derive(Debug, Clone, Default)]
pub(super) struct Prober {
    seconds: f64,
    /// Seconds that were spent on reading and are not paid yet.
    debt: f64,
    last: Option<Duration>,
    step: u64,
    rests_until: Until,
    neighbour_after: Until,
    pending: Option<Pending>,
    /// Whose last probe gained.
    promising: Option<u64>,
    /// Whether anybody probes in the present step.
    probes: bool,
    turn: usize,
}

impl Prober {
    /// Fills the account for the time since the last step.
    pub(super) fn accrue(&mut self, now: Duration) {
        self.step += 1;
        let last = self.last.replace(now).unwrap_or(now);
        let passed = now.saturating_sub(last).as_secs_f64().min(LONGEST_STEP);
        let income = BUDGET * passed;
        let paid = self.debt.min(income);
        self.debt -= paid;
        self.seconds += income - paid;
        // Whatever was not reported did not run.
        self.pending = None;
        self.probes = false;
    }

    /// Whether a probe of this expected loss may run now, by a sequence that is [`Prober::promising`] or by another.
    pub(super) fn affords(&mut self, now: Duration, loss: f64, promising: bool) -> bool {
        self.seconds = self.seconds.min(MOST_SAVED * loss.max(0.0));
        let free = self.is_over(now, self.rests_until) && (promising || self.debt <= 0.0);
        free && self.seconds >= loss
    }

    /// Whose probe gained when it was last tried.
    pub(super) fn promising(&self) -> Option<u64> {
        self.promising
    }

    /// Whether it is time to look at a neighbour of the best depth.
    pub(super) fn neighbour_is_due(&self, now: Duration) -> bool {
        self.is_over(now, self.neighbour_after)
    }

    fn is_over(&self, now: Duration, until: Until) -> bool {
        now >= until.time || self.step >= until.step
    }

    fn pause(&self, now: Duration, pause: Pause) -> Until {
        Until {
            time: now + pause.time,
            step: self.step + pause.steps,
        }
    }

    /// Starts a probe of one sequence; it is charged when its outcome is known.
    pub(super) fn start(&mut self, now: Duration, pending: Pending) {
        self.neighbour_after = self.pause(now, BETWEEN_NEIGHBOURS);
        self.pending = Some(pending);
        self.probes = true;
        self.turn = self.turn.wrapping_add(1);
    }

    /// Charges a probe whose loss is known beforehand.
    pub(super) fn spend(&mut self, now: Duration, loss: f64) {
        self.seconds -= loss;
        self.probes = true;
        self.rests_until = self.pause(now, AFTER_FAILURE);
        self.turn = self.turn.wrapping_add(1);
    }

    /// Charges what the draft model had to read before it could make a probe's draft: after a long time off that is
    /// most of a probe's price.
    pub(super) fn charge(&mut self, catch_up: Duration) {
        if self.probes {
            self.debt += catch_up.as_secs_f64();
        }
    }

    /// Counts up with every probe: whose turn it is.
    pub(super) fn turn(&self) -> usize {
        self.turn
    }

    /// Settles a probe when its sequence's draft was verified.
    pub(super) fn settle(&mut self, now: Duration, sequence: u64, accepted: usize) {
        let Some(pending) = self.pending.take_if(|pending| pending.sequence == sequence) else {
            return;
        };
        let gained = (accepted as f64 - pending.usual) / pending.price.max(f64::MIN_POSITIVE);
        let loss = pending.seconds - gained;
        self.seconds -= loss;
        self.promising = (loss <= 0.0).then_some(sequence);
        if loss > 0.0 {
            self.rests_until = self.pause(now, AFTER_FAILURE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(prober: &mut Prober, now: Duration, accepted: usize) -> bool {
        let loss = 0.004;
        let promising = prober.promising().is_some();
        if !prober.affords(now, loss, promising) {
            return false;
        }
        let pending = Pending {
            sequence: 1,
            usual: 0.0,
            seconds: loss,
            price: 50.0,
        };
        prober.start(now, pending);
        prober.settle(now, 1, accepted);
        true
    }

    #[test]
    fn failing_probes_never_cost_more_than_the_budget() {
        let mut prober = Prober::default();
        let mut lost = 0.0;
        for step in 0..5_000u64 {
            let now = Duration::from_millis(20 * step);
            prober.accrue(now);
            lost += f64::from(u8::from(probe(&mut prober, now, 0))) * 0.004;
        }
        assert!(lost <= 100.0 * BUDGET && lost > 90.0 * BUDGET, "{lost}");
    }

    #[test]
    fn what_was_read_for_a_sequence_keeps_the_others_waiting_until_it_is_paid() {
        let mut prober = Prober::default();
        let mut now = Duration::ZERO;
        let mut pass = |prober: &mut Prober| {
            now += Duration::from_millis(500);
            prober.accrue(now);
            now
        };
        pass(&mut prober);
        let now = pass(&mut prober);
        assert!(probe(&mut prober, now, 2));
        prober.charge(Duration::from_millis(20));
        let now = pass(&mut prober);
        assert!(!prober.affords(now, 0.004, false));
        assert!(probe(&mut prober, now, 0), "it was read for");
        // Half a second pays five of the twenty milliseconds; the first of them has passed.
        let waits = (0..20)
            .take_while(|_| {
                let now = pass(&mut prober);
                !prober.affords(now, 0.004, false)
            })
            .count();
        assert_eq!(waits, 2);
    }

    #[test]
    fn succeeding_probes_follow_each_other_at_once() {
        let mut prober = Prober::default();
        let mut made = 0;
        for step in 0..50u64 {
            let now = Duration::from_millis(20 * step);
            prober.accrue(now);
            made += usize::from(probe(&mut prober, now, 2));
        }
        assert!(made >= 25, "{made}");
    }
}
