//! What steps cost, by how fast the machine is.
//!
//! Most of what makes a machine slow makes all its steps slow, and a [`Surface`] takes that out by its tempo. Not so where it is
//! memory that is slow, because another tenant reads too or virtual cores were moved to where they share a path to it: steps
//! that wait for weights wait longer, and rows that are computed meanwhile become free. A model of 1.1 billion weights saw both
//! within seconds, again and again: four drafted rows for four sequences took 40 % longer than none in one spell, and 9 % in the
//! next. So when the machine is clearly slower or faster than when its costs were learnt, they are learnt anew, and the old ones
//! are kept for when it is again as it was: whichever told the latest steps best is believed.

use std::time::Duration;

use super::StepShape;
use super::surface::Surface;

/// Paces kept besides the present one; the one that was left first goes.
const MOST_OTHERS: usize = 2;

/// How fast it is noticed which pace tells the latest steps best: most of it are four of them. A step counts at most this much,
/// in logarithms.
const RATE: f64 = 0.25;
const LARGEST_MISFIT: f64 = 0.5;

/// By how much another one must be better, and as a part of how uneven steps are.
const CLEARLY: f64 = 0.04;
const CLEARLY_OF_UNEVENNESS: f64 = 0.5;

#[derive(Debug, Clone)]
struct Pace {
    surface: Surface,
    /// Mean distance of the latest steps from what it says of them, in logarithms.
    misfit: f64,
}

impl Pace {
    fn new(surface: Surface) -> Self {
        Self {
            surface,
            misfit: 0.0,
        }
    }

    fn judge(&mut self, shape: &StepShape, seconds: f64) {
        let off = (seconds / self.surface.of_late(shape)).ln();
        let misfit = off.abs().min(LARGEST_MISFIT);
        self.misfit += RATE * (misfit - self.misfit);
    }
}

/// The surface that is believed, and those of other paces, in the order in which they were left.
#[derive(Debug, Clone)]
pub(super) struct Paces {
    present: Pace,
    others: Vec<Pace>,
}

impl Paces {
    pub(super) fn new(surface: Surface) -> Self {
        Self {
            present: Pace::new(surface),
            others: Vec::new(),
        }
    }

    /// The surface to believe.
    pub(super) fn present(&self) -> &Surface {
        &self.present.surface
    }

    /// Learns one sample.
    pub(super) fn observe(&mut self, now: Duration, shape: &StepShape, seconds: f64) {
        for pace in self.others.iter_mut().chain([&mut self.present]) {
            pace.judge(shape, seconds);
        }
        self.believe_the_best();
        let surface = &mut self.present.surface;
        surface.observe(now, shape, seconds);
        if let Some(other) = surface.part_from_home() {
            self.change_to(Pace::new(other));
        }
    }

    fn believe_the_best(&mut self) {
        let unevenness = self.present.surface.unevenness();
        let clearly = CLEARLY.max(CLEARLY_OF_UNEVENNESS * unevenness);
        let others = self.others.iter().enumerate();
        let best = others.min_by(|(_, a), (_, b)| a.misfit.total_cmp(&b.misfit));
        if let Some((index, best)) = best
            && self.present.misfit - best.misfit > clearly
        {
            let best = self.others.remove(index);
            self.change_to(best);
        }
    }

    fn change_to(&mut self, pace: Pace) {
        if self.others.len() >= MOST_OTHERS {
            self.others.remove(0);
        }
        self.others.push(std::mem::replace(&mut self.present, pace));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::surface::Prior;
    use crate::simulate::Noise;

    const SPELL: usize = 200;

    fn paces() -> Paces {
        Paces::new(Surface::measured_in_plain_steps(Prior {
            batch_slope: 0.1,
            drafted_slope: 0.1,
        }))
    }

    fn of_four(drafted: usize) -> StepShape {
        StepShape {
            sequences: 4,
            drafted,
            context: 0,
        }
    }

    /// Steps of four sequences, every third of them without drafts, in spells.
    fn run(
        paces: &mut Paces,
        steps: std::ops::Range<usize>,
        seconds: impl Fn(usize, usize) -> f64,
    ) {
        let mut noise = Noise::new(7);
        for step in steps {
            let drafted = [0, 4, 2][step % 3];
            let took = seconds(step / SPELL, drafted) * (0.05 * noise.normal()).exp();
            let now = Duration::from_millis(20 * step as u64);
            paces.observe(now, &of_four(drafted), took);
        }
    }

    /// Memory is slow in every second spell: rows that cost two fifths ride along.
    fn in_spells_of_slow_memory(spell: usize, drafted: usize) -> f64 {
        let (plain, row) = [(0.022, 0.0022), (0.033, 0.0007)][spell % 2];
        plain + row * drafted as f64
    }

    #[test]
    fn each_pace_has_costs_of_its_own_and_is_known_again_within_a_few_steps() {
        const SOON: usize = 12;
        let mut paces = paces();
        run(&mut paces, 0..6 * SPELL, in_spells_of_slow_memory);
        for spell in 6..10 {
            let begin = spell * SPELL;
            run(&mut paces, begin..begin + SOON, in_spells_of_slow_memory);
            let found = paces.present().at(&of_four(4)) / paces.present().at(&of_four(0));
            let truth = in_spells_of_slow_memory(spell, 4) / in_spells_of_slow_memory(spell, 0);
            assert!(
                (found / truth - 1.0).abs() < 0.05,
                "spell {spell}: {found} for {truth}"
            );
            run(
                &mut paces,
                begin + SOON..begin + SPELL,
                in_spells_of_slow_memory,
            );
        }
    }

    #[test]
    fn no_more_are_kept_than_are_of_use() {
        let mut paces = paces();
        run(&mut paces, 0..40 * SPELL, |spell, drafted| {
            0.01 * 1.3f64.powi(spell as i32 % 9) * (1.0 + 0.1 * drafted as f64)
        });
        assert!(paces.others.len() <= MOST_OTHERS);
        let found = paces.present().at(&of_four(4)) / paces.present().at(&of_four(0));
        assert!((found / 1.4 - 1.0).abs() < 0.06, "{found}");
    }

    #[test]
    fn a_machine_that_is_even_has_one() {
        let mut paces = paces();
        run(&mut paces, 0..20 * SPELL, |_, drafted| {
            in_spells_of_slow_memory(0, drafted)
        });
        assert!(paces.others.is_empty());
    }
}
