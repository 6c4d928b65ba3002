//! Which probe is made in a step, if any: what is tried, by whom, and what it is expected to lose.
//!
//! In this order:
//! 1. a step without drafts, where it is not known, or not of late, what that costs: every expectation rests on it;
//! 2. where nothing is drafted in a large batch, one looked-up token of everybody at once: what rows cost is seen only
//!    when many come together;
//! 3. one draft of a sequence that drafts nothing: of the one whose last probe gained, else of the one for whom least is
//!    to be read first;
//! 4. a draft of a lookup of another length, if the best could be there and it is not known what it costs;
//! 5. now and then, a draft that is one or two deeper than the best is believed to be.

use std::time::Duration;

use super::Reason;
use super::arm::{Arm, tokens};
use super::probe::{AFTER_READING, Pending, Probed, Prober};
use super::step_costs::StepCosts;
use crate::source::{DrafterKind, Source};

/// Depth of a probe where nothing is drafted: two positions tell more than one at nearly the same price.
const PROBE_DEPTH: usize = 2;

/// Sequences from which on they probe together too.
const TOGETHER_FROM: usize = 4;

/// What a step that was never measured may bring beyond what is believed, as a part of it: as much as a group of rows that
/// is full brings more than one that has just begun.
const DOUBT: f64 = 0.25;

/// However promising, a probe may fail: this part of its price must be there.
const AT_RISK: f64 = 0.3;

/// A plan on its way.
pub(super) struct Draught<'a> {
    pub(super) now: Duration,
    pub(super) who: &'a [(u64, Source)],
    pub(super) arms: &'a [Arm],
    pub(super) costs: &'a StepCosts,
    pub(super) depths: &'a [usize],
    /// Seconds that a draft costs the steps behind it where nothing else is drafted.
    pub(super) leaves: f64,
    /// Evidence of what a step without drafts costs.
    pub(super) plain_evidence: f64,
    /// Whether it is time for such a step.
    pub(super) plain_is_due: bool,
    /// Evidence of what a step with so many drafted tokens costs: from 1 on it is known.
    pub(super) known: &'a dyn Fn(usize) -> f64,
}

/// Why something is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// It is not known whether it pays.
    Unsure,
    /// The last probe of the same sequence gained.
    Promising,
    /// It is not known what it costs.
    Cost,
}

/// Depths to be tried in place of those planned.
type Tried = (Vec<usize>, Reason);

impl Draught<'_> {
    /// The probe of this step, which is then under way.
    pub(super) fn probe(&self, prober: &mut Prober) -> Option<Tried> {
        let drafts = self.depths.iter().any(|&depth| depth > 0);
        if drafts {
            prober.drafts();
        }
        if drafts
            && (self.plain_evidence < 1.0 || self.plain_is_due)
            && let Some(probe) = self.probe_off(prober)
        {
            return Some(probe);
        }
        if !drafts
            && self.depths.len() >= TOGETHER_FROM
            && prober.turn().is_multiple_of(2)
            && let Some(probe) = self.probe_together(prober)
        {
            return Some(probe);
        }
        self.probe_cost(prober)
            .or_else(|| self.probe_deeper(prober))
    }

    /// Another depth of a lookup, deeper or not, that would be the best if it were cheaper than is believed without having
    /// been measured. Costs are not smooth: rows are computed in groups, and the best depth is where one ends. Of one
    /// sequence alone: together with others, or by the model, drafts are of all kinds of lengths anyway.
    fn probe_cost(&self, prober: &mut Prober) -> Option<Tried> {
        let (&[(sequence, source)], &[depth], [arm]) = (self.who, self.depths, self.arms) else {
            return None;
        };
        let kind = source.kind();
        // Nothing need be computed unless there is something to spend.
        if depth == 0 || kind == DrafterKind::Model || !prober.affords(self.now, kind, 0.0, false) {
            return None;
        }
        let mut best = (self.price(), depth);
        for other in 1..=arm.limit.min(self.costs.most()) {
            let unknown = (1.0 - (self.known)(other)).max(0.0);
            let hoped = self.costs.goodput(self.arms, &[other]) * (1.0 + DOUBT * unknown);
            if unknown > 0.0 && hoped > best.0 {
                best = (hoped, other);
            }
        }
        let (_, other) = best;
        if other == depth {
            return None;
        }
        self.try_out(prober, vec![other], Probed::One(sequence), kind, Why::Cost)
            .map(|tried| (tried, Reason::ProbeDeeper { sequence }))
    }

    fn probe_off(&self, prober: &mut Prober) -> Option<Tried> {
        let Self { arms, costs, .. } = self;
        let plain = Some((vec![0; self.depths.len()], Reason::ProbeOff));
        if self.plain_is_due {
            return plain;
        }
        let foregone = tokens(arms, self.depths) - arms.len() as f64;
        let saved = costs.seconds(arms, self.depths) - costs.verify(0);
        let mut loss = (foregone / self.price() - saved).max(0.0);
        let kind = self.kind_of(self.depths.iter().position(|&depth| depth > 0)?)?;
        if self.plain_evidence == 0.0 {
            // The first one is free: without it every expectation is a guess, its price too. Seconds that nobody has
            // measured yet would silence the probes for a minute.
            loss = 0.0;
        } else if !prober.affords(self.now, kind, loss, false) {
            return None;
        }
        prober.spend(self.now, kind, loss);
        plain
    }

    /// Lookups only: for a draft of the model everybody would have to be read for.
    fn probe_together(&self, prober: &mut Prober) -> Option<Tried> {
        let tried: Vec<usize> = self
            .arms
            .iter()
            .map(|arm| {
                if arm.runs_a_model {
                    0
                } else {
                    arm.limit.min(1)
                }
            })
            .collect();
        let rows: usize = tried.iter().sum();
        if rows < self.arms.len().div_ceil(2) {
            return None;
        }
        let (sequence, _) = *self.who.first()?;
        self.try_out(prober, tried, Probed::All, DrafterKind::Ngram, Why::Unsure)
            .map(|tried| (tried, Reason::ProbeDeeper { sequence }))
    }

    fn probe_deeper(&self, prober: &mut Prober) -> Option<Tried> {
        let turn = prober.turn();
        let promising = prober.promising().and_then(|sequence| {
            let index = self.who.iter().position(|&(id, _)| id == sequence)?;
            (self.depths.get(index) == Some(&0) && self.has_room(index)).then_some(index)
        });
        let off = promising.or_else(|| self.cheapest_to_begin(turn));
        let index = off.or_else(|| {
            self.in_turn(turn)
                .find(|&index| self.depths.get(index) > Some(&0))
                .filter(|_| prober.neighbour_is_due(self.now))
        })?;
        let (arm, &depth) = (self.arms.get(index)?, self.depths.get(index)?);
        let deeper = if depth == 0 {
            PROBE_DEPTH
        } else {
            depth + 1 + usize::from(turn.is_multiple_of(self.leap_every()))
        };
        let mut tried = self.depths.to_vec();
        *tried.get_mut(index)? = deeper.min(arm.limit);
        let (sequence, _) = *self.who.get(index)?;
        let kind = self.kind_of(index)?;
        self.try_out(
            prober,
            tried,
            Probed::One(sequence),
            kind,
            promising.map_or(Why::Unsure, |_| Why::Promising),
        )
        .map(|tried| (tried, Reason::ProbeDeeper { sequence }))
    }

    /// Every how many probes one goes two deeper: rows are computed in groups, and where one begins the next is dear and the one
    /// behind it cheap. One sequence alone has nobody to share a group with.
    fn leap_every(&self) -> usize {
        if self.is_alone() { 2 } else { 4 }
    }

    fn is_alone(&self) -> bool {
        self.arms.len() == 1
    }

    /// Those that could draft more than they do, whose turn it is first.
    fn in_turn(&self, turn: usize) -> impl Iterator<Item = usize> {
        let count = self.depths.len();
        (0..count)
            .map(move |i| (i + turn) % count.max(1))
            .filter(|&index| self.has_room(index))
    }

    fn has_room(&self, index: usize) -> bool {
        let room = self.arms.get(index).zip(self.depths.get(index));
        room.is_some_and(|(arm, &depth)| depth < arm.limit)
    }

    /// Of those that draft nothing the one for whom least is to be read.
    fn cheapest_to_begin(&self, turn: usize) -> Option<usize> {
        let entry = |index: &usize| self.arms.get(*index).map_or(f64::MAX, |arm| arm.entry);
        self.in_turn(turn)
            .filter(|&index| self.depths.get(index) == Some(&0))
            .min_by(|a, b| entry(a).total_cmp(&entry(b)))
    }

    fn try_out(
        &self,
        prober: &mut Prober,
        tried: Vec<usize>,
        who: Probed,
        kind: DrafterKind,
        why: Why,
    ) -> Option<Vec<usize>> {
        let Self { arms, costs, .. } = self;
        if tried.iter().sum::<usize>() > costs.most() {
            return None;
        }
        let mut seconds = costs.seconds(arms, &tried) - costs.seconds(arms, self.depths);
        if self.depths.iter().all(|&depth| depth == 0) {
            seconds += self.leaves;
        }
        let price = self.price();
        let gain = (tokens(arms, &tried) - tokens(arms, self.depths)) / price;
        let read: f64 = arms
            .iter()
            .zip(self.depths.iter().zip(&tried))
            .filter(|(_, (usual, tried))| **usual == 0 && **tried > 0)
            .map(|(arm, _)| arm.entry)
            .sum();
        let loss = (seconds - gain).max(AT_RISK * seconds);
        if !prober.affords(self.now, kind, loss + read, why == Why::Promising) {
            return None;
        }
        let more = if self.is_alone() && read > seconds {
            AFTER_READING - 1
        } else {
            0
        };
        let usual = match who {
            Probed::All => tokens(arms, self.depths) - arms.len() as f64,
            Probed::One(sequence) => {
                let index = self.who.iter().position(|&(id, _)| id == sequence)?;
                self.arms.get(index)?.tokens(*self.depths.get(index)?) - 1.0
            }
        };
        prober.start(
            self.now,
            Pending {
                who,
                kind,
                usual,
                seconds,
                price,
                read,
                more,
                measures: why == Why::Cost,
            },
        );
        Some(tried)
    }

    /// Tokens per second as planned: what a second is worth.
    fn price(&self) -> f64 {
        let goodput = self.costs.goodput(self.arms, self.depths);
        goodput.max(f64::MIN_POSITIVE)
    }

    fn kind_of(&self, index: usize) -> Option<DrafterKind> {
        self.who.get(index).map(|(_, source)| source.kind())
    }
}
