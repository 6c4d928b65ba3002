//! What steps cost, by how fast the machine is.
//!
//! Most of what makes a machine slow makes all its steps slow, and a [`Surface`] takes that out by its tempo. Not so where
//! somebody else takes the memory's bandwidth: steps that wait for weights wait longer, and rows that are computed meanwhile
//! become free. A model of 1.1 billion weights saw both within seconds, again and again: four drafted rows for four sequences
//! took 40 % longer than none in one spell, and 9 % in the next. So when the machine is clearly slower or faster than when its
//! costs were learnt, they are learnt anew, and the old ones are kept for when it is again as it was: whichever told the latest
//! steps best is believed.

use std::time::Duration;

use super::surface::Surface;

/// Paces kept; the one that was believed longest ago goes.
const MOST: usize = 3;

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
    /// Step at which it was last believed.
    believed: u64,
}

/// Surfaces for each pace, one of which is believed.
#[derive(Debug, Clone)]
pub(super) struct Paces {
    paces: Vec<Pace>,
    present: usize,
    steps: u64,
}

impl Paces {
    pub(super) fn new(surface: Surface) -> Self {
        let pace = Pace {
            surface,
            misfit: 0.0,
            believed: 0,
        };
        Self {
            paces: vec![pace],
            present: 0,
            steps: 0,
        }
    }

    /// The surface to believe.
    pub(super) fn present(&self) -> &Surface {
        &self.paces[self.present].surface
    }

    /// Learns one sample.
    pub(super) fn observe(
        &mut self,
        now: Duration,
        batch: usize,
        drafted: usize,
        context: usize,
        seconds: f64,
    ) {
        self.steps += 1;
        for pace in &mut self.paces {
            let off = (seconds / pace.surface.at(batch, drafted, context)).ln();
            let misfit = off.abs().min(LARGEST_MISFIT);
            pace.misfit += RATE * (misfit - pace.misfit);
        }
        self.believe_the_best();
        let pace = &mut self.paces[self.present];
        pace.believed = self.steps;
        pace.surface.observe(now, batch, drafted, context, seconds);
        if let Some(other) = pace.surface.part_from_home(now) {
            self.keep(other);
        }
    }

    fn believe_the_best(&mut self) {
        let misfit = |pace: &Pace| pace.misfit;
        let present = &self.paces[self.present];
        let clearly = CLEARLY.max(CLEARLY_OF_UNEVENNESS * present.surface.unevenness());
        let best = (0..self.paces.len())
            .min_by(|&a, &b| misfit(&self.paces[a]).total_cmp(&misfit(&self.paces[b])));
        if let Some(best) = best
            && misfit(present) - misfit(&self.paces[best]) > clearly
        {
            self.present = best;
        }
    }

    /// Keeps and believes another one.
    fn keep(&mut self, surface: Surface) {
        if self.paces.len() >= MOST {
            let oldest = (0..self.paces.len()).min_by_key(|&index| self.paces[index].believed);
            self.paces.swap_remove(oldest.unwrap_or(0));
        }
        self.paces.push(Pace {
            surface,
            misfit: 0.0,
            believed: self.steps,
        });
        self.present = self.paces.len() - 1;
    }
}
