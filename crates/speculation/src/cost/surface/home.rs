//! Where costs were learnt, and what becomes of them elsewhere.

use std::collections::BTreeMap;

use super::Surface;
use crate::cost::StepShape;
use crate::cost::beliefs::GUESSED;

/// Factor between tempos from which on costs are learnt anew, and as some times the spread of steps: chance must not do it.
const FAR_AWAY: f64 = 1.2;
const FAR_AWAY_IN_SPREADS: f64 = 2.0;

/// Part of the distance that the tempo of some steps goes towards that of the latest.
const RATE: f64 = 0.08;

/// The tempo that costs were learnt at, and that of about the last dozen of steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Home {
    tempo: f64,
    of_late: f64,
}

impl Default for Home {
    fn default() -> Self {
        Self {
            tempo: 1.0,
            of_late: 1.0,
        }
    }
}

impl Home {
    /// A machine that is at home.
    fn at(tempo: f64) -> Self {
        Self {
            tempo,
            of_late: tempo,
        }
    }

    /// A step ran at this tempo.
    pub(super) fn hear(&mut self, tempo: f64) {
        self.of_late *= (tempo / self.of_late).powf(RATE);
    }
}

impl Surface {
    /// Seconds at the tempo of about the last dozen of steps: a tempo that follows at once would make every surface fit.
    pub(in crate::cost) fn of_late(&self, shape: &StepShape) -> f64 {
        self.at(shape) * self.home.of_late / self.beliefs.tempo()
    }

    /// Whether the machine is clearly slower or faster than when its costs were learnt, and has been for some steps.
    fn is_far_from_home(&self) -> bool {
        let Home { tempo, of_late } = self.home;
        let far = FAR_AWAY.max((FAR_AWAY_IN_SPREADS * self.beliefs.spread()).exp());
        let is_far = |now: f64| (now / tempo).max(tempo / now) > far;
        !self.beliefs.is_surprised() && is_far(of_late) && is_far(self.beliefs.tempo())
    }

    /// If it is: goes back to what they were then, and gives a surface for how it is now. What drafts cost there has to be
    /// learnt again. Until then it is guessed to be half-way between as much slower as plain steps are, and no slower
    /// than before but for what plain steps wait: a guess that is too dear would keep it from being learnt.
    pub(in crate::cost) fn part_from_home(&mut self) -> Option<Surface> {
        if !self.is_far_from_home() {
            return None;
        }
        let mut there = self.clone();
        there.home = Home::at(self.beliefs.tempo());
        self.beliefs.return_to(self.home.tempo);
        self.home = Home::at(self.home.tempo);
        let slower = there.home.tempo / self.home.tempo;
        let plain: BTreeMap<usize, f64> = self
            .cells
            .iter()
            .filter(|((_, drafted), _)| *drafted == 0)
            .map(|((row, _), cell)| (*row, self.beliefs.value(cell.cost)))
            .collect();
        for ((row, drafted), cell) in &there.cells {
            if *drafted > 0 {
                let plain = plain.get(row).copied().unwrap_or(0.0);
                let as_before = there.beliefs.value(cell.cost);
                let riding_along = (as_before / slower).max(as_before.min(plain));
                let half_way = (riding_along * as_before).sqrt();
                there.beliefs.guess_again(cell.cost, half_way, GUESSED);
            }
        }
        there.refresh();
        Some(there)
    }
}
