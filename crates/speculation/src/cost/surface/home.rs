//! Where costs were learnt, and what becomes of them elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Surface;

/// Factor between tempos from which on costs are learnt anew, and as some times the spread of steps: chance must not do it.
const FAR_AWAY: f64 = 1.2;
const FAR_AWAY_IN_SPREADS: f64 = 2.0;

impl Surface {
    /// Whether the machine is clearly slower or faster than when its costs were learnt.
    pub(super) fn is_far_from_home(&self) -> bool {
        let (tempo, home) = (self.tempo.value(), self.home);
        let far = FAR_AWAY.max((FAR_AWAY_IN_SPREADS * self.tempo.spread()).exp());
        self.tempo.is_settled() && (tempo / home).max(home / tempo) > far
    }

    /// If it is: goes back to what they were then, and gives a surface for how it is now. What drafts cost there has to be
    /// learnt again. Until then it is guessed to be half-way between as much slower as plain steps are, and no slower
    /// than before but for what plain steps wait: a guess that is too dear would keep it from being learnt.
    pub(in crate::cost) fn part_from_home(&mut self, now: Duration) -> Option<Surface> {
        if !self.is_far_from_home() {
            return None;
        }
        let mut there = self.clone();
        there.home = self.tempo.value();
        self.tempo.return_to(self.home);
        let slower = there.home / self.home;
        let plain: BTreeMap<usize, f64> = self
            .cells
            .iter()
            .filter(|((_, drafted), _)| *drafted == 0)
            .filter_map(|((row, _), cell)| Some((*row, cell.usual()?.seconds)))
            .collect();
        for ((row, drafted), cell) in &mut there.cells {
            if *drafted > 0 {
                let plain = plain.get(row).copied().unwrap_or(0.0);
                cell.guess(|as_before| {
                    let riding_along = (as_before / slower).max(as_before.min(plain));
                    (riding_along * as_before).sqrt()
                });
            }
        }
        there.refresh(now);
        Some(there)
    }
}
