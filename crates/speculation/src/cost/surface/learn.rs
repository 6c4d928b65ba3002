//! How a surface learns from one step.

use std::time::Duration;

use super::{LEAST_SECONDS, MOST_SECONDS, Surface, key};
use crate::cost::StepShape;
use crate::cost::cell::{Cell, Sample, Usual};
use crate::cost::tempo::Verdict;

/// Samples after which the table is made anew: of a cell that still fills, and of one that is full. It costs tens of
/// microseconds, and one sample of a full cell in so many changes little. The first samples of a cell are seen at once:
/// an error that is believed for eight steps is dear where it makes them long.
const REFRESH_EVERY: usize = 8;
const REFRESH_FULL_EVERY: usize = 32;
const REFRESH_FIRST: usize = 4;

/// A cell must hold so many samples before its deviations speak for the machine's tempo: the error of a young
/// cell, taken for a change of tempo, would never be corrected.
const TRUSTED: f64 = 20.0;

/// Samples before any of them can be called an outlier.
const FIRST_SAMPLES: usize = 4;

/// A sample further off than this factor is taken for the factor: it may be real, but not at once.
const OUTLIER: f64 = 3.0;

/// Part of a step that context never explains, whatever slope is believed.
const LEAST_SHARE: f64 = 0.1;

/// A step as it is learnt from.
struct Seen {
    key: (usize, usize),
    batch: usize,
    drafted: usize,
    context: f64,
    /// What it took, but for what drafts before it had left behind.
    seconds: f64,
    /// The same at tempo 1, within reason.
    sample: f64,
    /// Whether it is one of a row of steps without drafts.
    follows_plain: bool,
}

impl Surface {
    /// Learns one sample.
    pub(in crate::cost) fn observe(&mut self, now: Duration, shape: &StepShape, seconds: f64) {
        let seen = self.see(shape, seconds);
        if !self.cells.contains_key(&seen.key) {
            self.make_room();
            self.cells.insert(seen.key, Cell::new());
        }
        let verdict = self.hear_of_tempo(now, &seen);
        self.keep(now, &seen);
        let refresh_at = self.cells.get(&seen.key).map_or(1, unseen_at_most);
        // Far from home they are not wrong but of another pace, and are kept for when it comes back.
        if verdict == Verdict::DraftsAreWrong && !self.is_far_from_home() {
            let wrong = seen.key.0;
            self.cells
                .retain(|&(row, drafted), _| row != wrong || drafted == 0);
            self.refresh(now);
        }
        self.samples += 1;
        self.unseen += 1;
        if self.samples <= REFRESH_EVERY
            || self.unseen >= refresh_at
            || !self.table.covers(seen.batch, seen.drafted)
        {
            self.refresh(now);
        }
    }

    fn see(&mut self, shape: &StepShape, seconds: f64) -> Seen {
        let (batch, drafted) = (shape.sequences.max(1), shape.drafted);
        let context = shape.context as f64;
        let expected = self.still(batch, drafted) + self.context.value() * context;
        let mut seconds = seconds.clamp(LEAST_SECONDS, MOST_SECONDS);
        let mut follows_plain = false;
        if let Some(aftermath) = &mut self.aftermath {
            let since_drafts = aftermath.observe(drafted > 0, seconds / expected);
            seconds /= aftermath.factor(since_drafts, batch, seconds);
            follows_plain = since_drafts > 1;
        }
        let mut sample = seconds / self.tempo.value();
        if self.samples > FIRST_SAMPLES {
            sample = sample.clamp(expected / OUTLIER, expected * OUTLIER);
        }
        Seen {
            key: key(batch, drafted),
            batch,
            drafted,
            context,
            seconds,
            sample: sample.clamp(LEAST_SECONDS, MOST_SECONDS),
            follows_plain,
        }
    }

    /// What a step says of the machine's tempo, and of what context costs, if enough is known of its kind.
    fn hear_of_tempo(&mut self, now: Duration, seen: &Seen) -> Verdict {
        let is_trusted = |cell: &&Cell| cell.evidence(now) >= TRUSTED;
        let trusted = |key| self.cells.get(&key).filter(is_trusted);
        let plain_is_known = trusted((seen.key.0, 0)).is_some();
        let Some(usual) = trusted(seen.key).and_then(Cell::usual) else {
            self.tempo.miss();
            return Verdict::Right;
        };
        let Usual { seconds, context } = usual;
        let for_context = self.context.value() * seen.context;
        let beat = (seen.seconds - for_context * self.tempo.value())
            .max(LEAST_SHARE * seen.seconds)
            / seconds;
        let deviation = (seen.sample - for_context - seconds).clamp(-0.5 * seconds, 0.5 * seconds);
        let off = seen.context - context;
        let slope = self.context.value();
        self.context.push(deviation + slope * off, off);
        self.tempo.observe(seen.drafted > 0, plain_is_known, beat)
    }

    fn keep(&mut self, now: Duration, seen: &Seen) {
        let Some(cell) = self.cells.get_mut(&seen.key) else {
            return;
        };
        // Where plain steps follow each other, the tempo follows them. If what was learnt of them did so too, both could
        // wander, and what was learnt of drafts would be left behind.
        if seen.follows_plain && cell.is_full() {
            cell.see(now);
        } else if self.tempo.is_settled() {
            let sample = Sample {
                batch: seen.batch as f64,
                drafted: seen.drafted as f64,
                context: seen.context,
                seconds: seen.sample,
            };
            cell.push(now, sample);
        }
    }
}

/// Samples that may wait until the table is made anew, where the latest is of this cell.
fn unseen_at_most(cell: &Cell) -> usize {
    match cell.len() {
        ..=REFRESH_FIRST => 1,
        _ if cell.is_full() => REFRESH_FULL_EVERY,
        _ => REFRESH_EVERY,
    }
}
