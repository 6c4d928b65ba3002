//! Trying what is not known, for a bounded price.
//!
//! A law that only does what it believes best never learns that it is wrong: at depth 0 no draft is ever
//! seen, and at depth 4 no plain step. So now and then one step does something else. The price comes out of
//! an account that fills with a part of the time: a probe is made when the account can pay what it is
//! expected to lose, and is charged what it did lose. A probe that gained pays in. So losses stay below the
//! budget whatever happens, and where drafts have begun to succeed probes follow each other at once: a
//! shift is noticed after one probe and believed after a few. What the draft model has to read before a first probe is
//! most of its price and must be there beforehand; what it took beyond is a debt that later income pays, and that keeps
//! all but the sequence waiting that was read for.
//!
//! Lookups and the draft model have an account each: cheap probes of the one would else always be made before the
//! other's could be paid. What lookups have no use for goes to the draft model.
//!
//! Charges are by expected times and real tokens: one slow step would else silence the probes for a minute.

use std::time::Duration;

use crate::source::DrafterKind;
use crate::step::Verified;

/// Share of the time that probes of lookups may lose, and those of the draft model: one in a hundred in all.
const LOOKUPS_BUDGET: f64 = 0.004;
const MODEL_BUDGET: f64 = 0.006;

/// Least time after a probe that failed, or steps where those are short. The more of them have failed since anything was
/// drafted as planned, the longer, up to [`LONGEST`]: a text that has resisted for long is asked less often.
const AFTER_FAILURE: Pause = Pause {
    time: Duration::from_millis(150),
    steps: 24,
};

/// How many times as long, in time and in steps that are planned: short enough for a text that has changed to be noticed within a second.
const LONGEST: (u32, u32) = (4, 8);

/// The same between probes of depths next to the best one: they confirm more often than they surprise.
const BETWEEN_NEIGHBOURS: Pause = Pause {
    time: Duration::from_millis(600),
    steps: 96,
};

/// An account holds at most so many of the dearest probe's price: saved-up probes are worth less than fresh
/// ones.
const MOST_SAVED: f64 = 3.0;

/// Drafts that follow each other where the draft model had to read first, whatever becomes of them: reading is most of the
/// price, and what one draft says is luck. Where several sequences could be read for, the next one says more.
pub(super) const AFTER_READING: u32 = 4;

/// A longer pause between steps is idleness, and fills no account.
const LONGEST_STEP: f64 = 0.5;

/// A pause that is over when the time or the steps have passed, whichever is first.
#[derive(Debug, Clone, Copy)]
struct Pause {
    time: Duration,
    steps: u64,
}

impl Pause {
    fn from(self, now: Duration, step: u64) -> Until {
        Until {
            time: now + self.time,
            step: step + self.steps,
        }
    }

    /// The pause after so many failures.
    fn after(self, failures: u32) -> Pause {
        let (times, steps) = LONGEST;
        Pause {
            time: self.time * failures.min(times),
            steps: self.steps * u64::from(failures.min(steps)),
        }
    }
}

/// When a pause is over.
#[derive(Debug, Clone, Copy, Default)]
struct Until {
    time: Duration,
    step: u64,
}

impl Until {
    fn is_over(self, now: Duration, step: u64) -> bool {
        now >= self.time || step >= self.step
    }
}

/// Who probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Probed {
    /// One sequence drafts deeper than planned.
    One(u64),
    /// All together.
    All,
}

/// A probe that runs in the present step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pending {
    pub(super) who: Probed,
    /// Whose drafts are tried.
    pub(super) kind: DrafterKind,
    /// Tokens they were expected to have accepted without the probe.
    pub(super) usual: f64,
    /// Seconds the probe adds to the step.
    pub(super) seconds: f64,
    /// Tokens per second: what a second is worth.
    pub(super) price: f64,
    /// Seconds that the draft model is expected to read before.
    pub(super) read: f64,
    /// Probes of the same sequence that follow, whatever becomes of this one.
    pub(super) more: u32,
    /// It is made to see what a step costs: then it has not failed if it lost, and the next one need not wait.
    pub(super) measures: bool,
}

/// What may be spent on one kind of drafts.
#[derive(Debug, Clone, Copy, Default)]
struct Account {
    seconds: f64,
    /// Seconds that were spent on reading and are not paid yet.
    debt: f64,
    /// The dearest probe that was asked for since the last one, which included.
    dearest: f64,
    rests_until: Until,
    /// Probes that failed since something was drafted as planned.
    failures: u32,
}

impl Account {
    /// What is beyond its bound comes back.
    fn pay_in(&mut self, income: f64) -> f64 {
        let paid = self.debt.min(income);
        self.debt -= paid;
        let filled = self.seconds + income - paid;
        self.seconds = filled.min((MOST_SAVED * self.dearest).max(self.seconds));
        filled - self.seconds
    }

    fn fail(&mut self, now: Duration, step: u64) {
        self.failures = self.failures.saturating_add(1);
        self.rests_until = AFTER_FAILURE.after(self.failures).from(now, step);
    }
}

/// The accounts.
#[derive(Debug, Clone, Default)]
pub(super) struct Prober {
    model: Account,
    lookups: Account,
    last: Option<Duration>,
    step: u64,
    neighbour_after: Until,
    pending: Option<Pending>,
    /// Whose last probe gained, or who was read for and has not had all its drafts.
    promising: Option<u64>,
    /// Drafts that what was read is still good for.
    owed: u32,
    turn: usize,
}

impl Prober {
    /// Fills the accounts for the time since the last plan; this one stands for so many steps.
    pub(super) fn accrue(&mut self, now: Duration, steps: u32) {
        self.step += u64::from(steps);
        let last = self.last.replace(now).unwrap_or(now);
        let passed = now.saturating_sub(last).as_secs_f64().min(LONGEST_STEP);
        let beyond = self.lookups.pay_in(LOOKUPS_BUDGET * passed);
        self.model.pay_in(MODEL_BUDGET * passed + beyond);
        // Whatever was not reported did not run.
        self.pending = None;
    }

    /// Whether a probe of this expected loss may run now, by a sequence that is [`Prober::promising`] or by another.
    pub(super) fn affords(
        &mut self,
        now: Duration,
        kind: DrafterKind,
        loss: f64,
        promising: bool,
    ) -> bool {
        if promising && self.owed > 0 {
            return true;
        }
        let step = self.step;
        let account = self.account(kind);
        account.dearest = account.dearest.max(loss);
        let free = account.rests_until.is_over(now, step) && (promising || account.debt <= 0.0);
        free && account.seconds >= loss
    }

    /// Whose probe gained when it was last tried.
    pub(super) fn promising(&self) -> Option<u64> {
        self.promising
    }

    /// Whether it is time to look at a neighbour of the best depth.
    pub(super) fn neighbour_is_due(&self, now: Duration) -> bool {
        self.neighbour_after.is_over(now, self.step)
    }

    /// Starts a probe; it is charged when its outcome is known, but for what is read.
    pub(super) fn start(&mut self, now: Duration, pending: Pending) {
        self.neighbour_after = BETWEEN_NEIGHBOURS.from(now, self.step);
        let left = match (pending.who, self.promising) {
            (Probed::One(sequence), Some(promising)) if sequence == promising => {
                self.owed.saturating_sub(1)
            }
            _ => 0,
        };
        self.owed = left.max(pending.more);
        let account = self.account(pending.kind);
        account.seconds -= pending.read;
        account.dearest = pending.seconds + pending.read;
        self.pending = Some(pending);
        self.turn = self.turn.wrapping_add(1);
    }

    /// Charges a probe whose loss is known beforehand.
    pub(super) fn spend(&mut self, now: Duration, kind: DrafterKind, loss: f64) {
        let step = self.step;
        let account = self.account(kind);
        account.seconds -= loss;
        account.dearest = loss;
        account.rests_until = AFTER_FAILURE.from(now, step);
        self.turn = self.turn.wrapping_add(1);
    }

    /// Charges what the draft model had to read before it could make a probe's draft, beyond what was expected; what it had not
    /// is paid back.
    pub(super) fn charge(&mut self, catch_up: Duration) {
        if let Some(pending) = self.pending {
            let beyond = catch_up.as_secs_f64() - pending.read;
            let account = self.account(pending.kind);
            account.debt += beyond.max(0.0);
            account.seconds += (-beyond).max(0.0);
        }
    }

    /// Counts up with every probe: whose turn it is.
    pub(super) fn turn(&self) -> usize {
        self.turn
    }

    /// Settles the probe when its drafts were verified.
    pub(super) fn settle(&mut self, now: Duration, verified: &[Verified]) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        let theirs = verified.iter().filter(|one| match pending.who {
            Probed::One(sequence) => one.id == sequence,
            Probed::All => true,
        });
        let accepted: usize = theirs.map(|one| one.accepted).sum();
        let gained = (accepted as f64 - pending.usual) / pending.price.max(f64::MIN_POSITIVE);
        let loss = pending.seconds - gained;
        let owed = self.owed > 0;
        if let Probed::One(sequence) = pending.who {
            self.promising = (owed || loss <= 0.0).then_some(sequence);
        }
        let step = self.step;
        let account = self.account(pending.kind);
        account.seconds -= loss;
        if loss > 0.0 && !pending.measures && !owed {
            account.fail(now, step);
        }
    }

    /// Something is drafted as planned.
    pub(super) fn drafts(&mut self) {
        self.model.failures = 0;
        self.lookups.failures = 0;
    }

    fn account(&mut self, kind: DrafterKind) -> &mut Account {
        match kind {
            DrafterKind::Model => &mut self.model,
            DrafterKind::Ngram => &mut self.lookups,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    const LOSS: f64 = 0.004;

    fn probe_of(prober: &mut Prober, now: Duration, kind: DrafterKind, accepted: usize) -> bool {
        let promising = prober.promising().is_some();
        if !prober.affords(now, kind, LOSS, promising) {
            return false;
        }
        prober.start(now, pending(kind));
        prober.settle(now, &[verified(accepted)]);
        true
    }

    /// A probe for which nothing is to be read.
    fn pending(kind: DrafterKind) -> Pending {
        Pending {
            who: Probed::One(1),
            kind,
            usual: 0.0,
            seconds: LOSS,
            price: 50.0,
            read: 0.0,
            more: 0,
            measures: false,
        }
    }

    fn probe(prober: &mut Prober, now: Duration, accepted: usize) -> bool {
        probe_of(prober, now, DrafterKind::Model, accepted)
    }

    fn verified(accepted: usize) -> Verified {
        Verified {
            id: 1,
            source: Source::Model,
            planned: 2,
            drafted: 2,
            accepted,
            lookup: None,
        }
    }

    #[test]
    fn failing_probes_never_cost_more_than_the_budget() {
        let mut prober = Prober::default();
        let mut lost = [0.0; 2];
        for step in 0..5_000u64 {
            let now = Duration::from_millis(20 * step);
            prober.accrue(now, 1);
            let kinds = [DrafterKind::Model, DrafterKind::Ngram];
            for (lost, kind) in lost.iter_mut().zip(kinds) {
                *lost += f64::from(u8::from(probe_of(&mut prober, now, kind, 0))) * LOSS;
            }
        }
        let budgets = [100.0 * MODEL_BUDGET, 100.0 * LOOKUPS_BUDGET];
        for (lost, budget) in lost.into_iter().zip(budgets) {
            assert!(lost <= budget && lost > 0.9 * budget, "{lost} of {budget}");
        }
    }

    #[test]
    fn what_was_expected_to_be_read_and_was_not_is_paid_back() {
        let mut prober = Prober::default();
        for step in 0..10 {
            prober.accrue(Duration::from_millis(500 * step), 1);
            prober.affords(Duration::ZERO, DrafterKind::Model, 2.0 * LOSS, false);
        }
        let before = prober.model.seconds;
        let pending = Pending {
            read: LOSS,
            ..pending(DrafterKind::Model)
        };
        prober.start(Duration::ZERO, pending);
        prober.charge(Duration::from_secs_f64(0.25 * LOSS));
        let spent = before - prober.model.seconds;
        assert!((spent - 0.25 * LOSS).abs() < 1e-9, "{spent}");
        assert_eq!(prober.model.debt, 0.0);
    }

    #[test]
    fn what_was_read_for_a_sequence_keeps_the_others_waiting_until_it_is_paid() {
        let mut prober = Prober::default();
        let mut now = Duration::ZERO;
        let mut pass = |prober: &mut Prober| {
            now += Duration::from_millis(500);
            prober.accrue(now, 1);
            now
        };
        let now = pass(&mut prober);
        assert!(!prober.affords(now, DrafterKind::Model, LOSS, false));
        pass(&mut prober);
        let now = pass(&mut prober);
        assert!(prober.affords(now, DrafterKind::Model, LOSS, false));
        prober.start(now, pending(DrafterKind::Model));
        prober.charge(Duration::from_millis(20));
        prober.settle(now, &[verified(2)]);
        let now = pass(&mut prober);
        assert!(!prober.affords(now, DrafterKind::Model, LOSS, false));
        assert!(probe(&mut prober, now, 0), "it was read for");
        // Half a second pays five of the twenty milliseconds; the first of them has passed.
        let waits = (0..20)
            .take_while(|_| {
                let now = pass(&mut prober);
                !prober.affords(now, DrafterKind::Model, LOSS, false)
            })
            .count();
        assert_eq!(waits, 2);
    }

    #[test]
    fn what_was_read_is_good_for_several_drafts_whatever_becomes_of_them() {
        let mut prober = Prober::default();
        let now = Duration::from_secs(1);
        let affords = |prober: &mut Prober| {
            let promising = prober.promising().is_some();
            prober.affords(now, DrafterKind::Model, LOSS, promising)
        };
        prober.model.seconds = 6.0 * LOSS;
        assert!(affords(&mut prober));
        for left in (0..AFTER_READING).rev() {
            let first = left == AFTER_READING - 1;
            let mut probe = pending(DrafterKind::Model);
            if first {
                (probe.read, probe.more) = (5.0 * LOSS, left);
            }
            prober.start(now, probe);
            prober.settle(now, &[verified(0)]);
            // Long since nothing is left to pay with.
            assert_eq!(affords(&mut prober), left > 0, "{left} left");
        }
        assert_eq!(prober.promising(), None);
    }

    #[test]
    fn a_dear_probe_is_saved_for_though_cheaper_ones_are_asked_for_too() {
        let mut prober = Prober::default();
        let dear = 0.05;
        let mut made = 0;
        for step in 0..1_000u64 {
            let now = Duration::from_millis(20 * step);
            prober.accrue(now, 1);
            probe_of(&mut prober, now, DrafterKind::Ngram, 0);
            made += usize::from(prober.affords(now, DrafterKind::Model, dear, false));
        }
        assert!(made > 0);
    }

    #[test]
    fn what_keeps_failing_is_tried_less_often_until_something_is_drafted() {
        let mut prober = Prober::default();
        let mut step = 0;
        let mut steps_to_next = |prober: &mut Prober| {
            let from = step;
            loop {
                // Short steps, which pauses count, and probes that cost next to nothing.
                step += 1;
                let now = Duration::from_millis(step);
                prober.accrue(now, 1);
                prober.model.seconds = LOSS;
                if probe(prober, now, 0) {
                    return step - from;
                }
            }
        };
        let pauses: Vec<u64> = (0..11).map(|_| steps_to_next(&mut prober)).collect();
        assert_eq!(pauses, [1, 24, 48, 72, 96, 120, 144, 168, 192, 192, 192]);
        prober.drafts();
        steps_to_next(&mut prober);
        assert_eq!(steps_to_next(&mut prober), 24);
    }

    #[test]
    fn succeeding_probes_follow_each_other_at_once() {
        let mut prober = Prober::default();
        let made: Vec<bool> = (0..80u64)
            .map(|step| {
                let now = Duration::from_millis(20 * step);
                prober.accrue(now, 1);
                probe(&mut prober, now, 2)
            })
            .collect();
        // Until the account can pay a first one.
        let saving = made.iter().take_while(|made| !**made).count();
        assert!(saving <= 35, "{saving}");
        assert!(made.iter().skip(saving).all(|made| *made), "{made:?}");
    }
}
