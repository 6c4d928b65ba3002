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

    /// The cell of a step, which is made if there is none; also how often it was seen.
    fn visit(
        &mut self,
        now: Duration,
        batch: usize,
        drafted: usize,
        seconds: f64,
    ) -> (Unknown, usize) {
        let key = key(batch, drafted);
        if !self.cells.contains_key(&key) {
            // The first one of all is what others are guessed by.
            let guess = match self.cells.is_empty() {
                true => seconds / self.beliefs.tempo(),
                false => self.still(batch, drafted),
            };
            let cost = self.room_for(guess);
            self.cells.insert(
                key,
                Cell {
                    cost,
                    batch: batch as f64,
                    drafted: drafted as f64,
                    seen: 0,
                    latest: now,
                },
            );
        }
        let Some(cell) = self.cells.get_mut(&key) else {
            return (self.beliefs.guess(seconds), 0);
        };
        cell.seen += 1;
        cell.latest = now;
        let share = 1.0 / cell.seen.min(PLACED_BY) as f64;
        cell.batch += share * (batch as f64 - cell.batch);
        cell.drafted += share * (drafted as f64 - cell.drafted);
        (cell.cost, cell.seen)
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
