//! How a surface learns from one step.

use std::time::Duration;

use super::{Cell, LEAST_SECONDS, MAX_CELLS, MOST_SECONDS, Surface, key};
use crate::cost::StepShape;
use crate::cost::beliefs::{GUESSED, Measured, Unknown};

/// Samples after which the table is made anew: of a cell that was seen less often than so, and of others. It costs tens of
/// microseconds, and one sample more of what is known changes little. The first samples of a cell are seen at once:
/// an error that is believed for eight steps is dear where it makes them long.
const REFRESH_EVERY: usize = 8;
const OFTEN: usize = 40;
const REFRESH_OFTEN_EVERY: usize = 32;
const REFRESH_FIRST: usize = 4;

/// The very first steps may take ten times as long, out of pages that nobody has touched yet: then others show it at once.
const FIRST_STEPS: usize = 4;
const OUTLIER: f64 = 0.5;

/// Samples that say where those of a cell stand.
const PLACED_BY: usize = 40;

/// Part of the way that the usual context goes towards that of the latest step.
const CONTEXT_RATE: f64 = 0.05;

impl Surface {
    /// Learns one sample.
    pub(in crate::cost) fn observe(&mut self, now: Duration, shape: &StepShape, seconds: f64) {
        let (batch, drafted) = (shape.sequences.max(1), shape.drafted);
        let seconds = seconds.clamp(LEAST_SECONDS, MOST_SECONDS);
        let (cost, seen) = self.visit(now, batch, drafted, seconds);
        if self.samples < FIRST_STEPS && seconds < OUTLIER * self.beliefs.value(cost) {
            self.beliefs.guess_again(cost, seconds, GUESSED);
        }
        let expected = self.at(shape);
        let left_behind = self.aftermath.as_mut().map_or(1.0, |aftermath| {
            let since_drafts = aftermath.observe(drafted > 0, seconds / expected);
            aftermath.factor(since_drafts, batch, seconds)
        });
        self.beliefs.observe(
            now,
            &Measured {
                cost,
                context: shape.context as f64,
                seconds: seconds / left_behind,
            },
        );
        self.home.hear(self.beliefs.tempo());
        self.context += CONTEXT_RATE * (shape.context as f64 / batch as f64 - self.context);
        self.samples += 1;
        self.unseen += 1;
        if self.samples <= REFRESH_EVERY
            || self.unseen >= unseen_at_most(seen)
            || !self.table.covers(batch, drafted)
        {
            self.refresh();
        }
    }

    /// Takes note of where and when a step was; gives its unknown and how often one of its cell was seen.
    fn visit(
        &mut self,
        now: Duration,
        batch: usize,
        drafted: usize,
        seconds: f64,
    ) -> (Unknown, usize) {
        let key = key(batch, drafted);
        let mut cell = match self.cells.get(&key) {
            Some(cell) => cell.clone(),
            None => self.unseen_cell(batch, drafted, seconds),
        };
        cell.seen += 1;
        cell.latest = now;
        let share = 1.0 / cell.seen.min(PLACED_BY) as f64;
        cell.batch += share * (batch as f64 - cell.batch);
        cell.drafted += share * (drafted as f64 - cell.drafted);
        let visited = (cell.cost, cell.seen);
        self.cells.insert(key, cell);
        visited
    }

    /// A cell with a cost that is guessed by the others, or by its own first sample if there are none.
    fn unseen_cell(&mut self, batch: usize, drafted: usize, seconds: f64) -> Cell {
        let guess = match self.cells.is_empty() {
            true => seconds / self.beliefs.tempo(),
            false => self.still(batch, drafted),
        };
        Cell {
            cost: self.room_for(guess),
            batch: batch as f64,
            drafted: drafted as f64,
            seen: 0,
            latest: Duration::ZERO,
        }
    }

    /// A place for one more cost, perhaps of the cell that has not been seen for longest.
    fn room_for(&mut self, seconds: f64) -> Unknown {
        let oldest = self.cells.iter().min_by_key(|(_, cell)| cell.latest);
        let oldest = oldest.map(|(&key, _)| key);
        if self.cells.len() >= MAX_CELLS
            && let Some(cell) = oldest.and_then(|key| self.cells.remove(&key))
        {
            self.beliefs.guess_again(cell.cost, seconds, GUESSED);
            return cell.cost;
        }
        self.beliefs.guess(seconds)
    }
}

/// Samples that may wait until the table is made anew, where the latest is of a cell that was seen so often.
fn unseen_at_most(seen: usize) -> usize {
    match seen {
        ..=REFRESH_FIRST => 1,
        OFTEN.. => REFRESH_OFTEN_EVERY,
        _ => REFRESH_EVERY,
    }
}
