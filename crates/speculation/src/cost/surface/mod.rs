//! Beliefs, plane and table put together: one cost over (batch, drafted, context).

mod home;
mod learn;

use std::collections::BTreeMap;
use std::time::Duration;

use super::StepShape;
use super::aftermath::Aftermath;
use super::beliefs::{Beliefs, Unknown};
pub(super) use super::plane::Prior;
use super::plane::{Plane, Point};
use super::table::Table;
use crate::acceptance::MAX_DEPTH;
use home::Home;

/// Cells kept. A server sees a few batch sizes at a time, each with a dozen numbers of drafted tokens; the
/// longest unused goes when there are more. What is learnt of one is told to all, so they are also what a step costs here.
const MAX_CELLS: usize = 64;

/// Rows, over those that were ever seen of a batch, whose cost may be guessed at. A guess that is wrong is then wrong for
/// a step that is twice as long, and not for one that is ten times as long.
const REACH: usize = 2;
const FIRST_ROWS: usize = 4;

/// Bounds of what a step can have taken. No step takes less, and one that took more was stopped half-way: it says
/// nothing about costs. Within them every ratio here stays finite, so no measurement can poison the rest.
const LEAST_SECONDS: f64 = 1e-6;
const MOST_SECONDS: f64 = 60.0;

/// Distances are counted in these: half an octave of batch, a quarter of one of rows.
const BATCH_SCALE: f64 = 0.5;
const ROWS_SCALE: f64 = 0.25;

/// How far costs are from the plane, in the same distances.
const PLANE_DISTANCE: f64 = 1.5;

/// Relative difference of costs that a distance of 1 stands for.
const DIFFERENCE: f64 = 0.08;

/// Deviation of a sample, as times the mean distance of samples: more than that of an even machine.
const SAMPLE_DEVIATION: f64 = 1.25 * 1.25;

/// Depth of drafts at which the prior is held against what small ones cost, and the samples that it is worth there.
const FAR: f64 = 4.0;
const FAR_WEIGHT: f64 = 0.5;

/// Relative deviation at which a median counts as known.
const KNOWN_WITHIN: f64 = 0.06;

/// Noise of a machine that seems to have none: the first sample may still be an outlier.
const LEAST_NOISE: f64 = 2.0;

/// Bounds of the samples that takes.
const KNOWN_FROM: (f64, f64) = (3.0, 25.0);

/// Samples of a cell that count at most: whatever else there is to learn of it, it changes meanwhile.
const COUNTED: usize = 40;

/// Learns and answers.
#[derive(Debug, Clone)]
pub(crate) struct Surface {
    prior: Prior,
    cells: BTreeMap<(usize, usize), Cell>,
    beliefs: Beliefs,
    /// Where steps without drafts are what others are held against: what drafts leave behind for them.
    aftermath: Option<Aftermath>,
    home: Home,
    /// Tokens in the cache of a sequence, of late.
    context: f64,
    plane: Plane,
    table: Table,
    samples: usize,
    /// Samples since the table was made.
    unseen: usize,
}

/// One kind of step: so many sequences, so many drafted tokens.
#[derive(Debug, Clone)]
struct Cell {
    cost: Unknown,
    /// Where its samples stand on average: a cell covers up to a quarter of an octave.
    batch: f64,
    drafted: f64,
    seen: usize,
    latest: Duration,
}

impl Cell {
    /// Samples that count.
    fn counted(&self) -> f64 {
        self.seen.min(COUNTED) as f64
    }
}

impl Surface {
    pub(super) fn new(prior: Prior) -> Self {
        Self {
            prior,
            cells: BTreeMap::new(),
            beliefs: Beliefs::default(),
            aftermath: None,
            home: Home::default(),
            context: 0.0,
            plane: Plane::unit(prior),
            table: Table::default(),
            samples: 0,
            unseen: 0,
        }
    }

    /// The same where steps with drafts are held against those without.
    pub(super) fn measured_in_plain_steps(prior: Prior) -> Self {
        Self {
            aftermath: Some(Aftermath::default()),
            ..Self::new(prior)
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Seconds at the present tempo.
    pub(super) fn at(&self, shape: &StepShape) -> f64 {
        let context = self.beliefs.context() * shape.context as f64;
        let still = self.still(shape.sequences.max(1), shape.drafted);
        (still + context) * self.beliefs.tempo()
    }

    /// The same at each number of drafted tokens from 0 to `most`.
    pub(super) fn curve(&self, shape: &StepShape, most: usize) -> Vec<f64> {
        let context = self.beliefs.context() * shape.context as f64;
        let (tempo, batch) = (self.beliefs.tempo(), shape.sequences.max(1));
        (0..=most)
            .map(|drafted| (self.still(batch, drafted) + context) * tempo)
            .collect()
    }

    /// What drafts leave behind for all plain steps that follow them.
    pub(super) fn left_behind(&self, shape: &StepShape) -> f64 {
        let plain = self.at(shape);
        let aftermath = self.aftermath.as_ref();
        aftermath.map_or(0.0, |aftermath| aftermath.whole(shape.sequences, plain))
    }

    /// How uneven the machine is.
    pub(super) fn unevenness(&self) -> f64 {
        self.beliefs.spread()
    }

    /// What is known of the cost of this very place, over what it takes to rely on it.
    pub(super) fn evidence(&self, batch: usize, drafted: usize) -> f64 {
        let (least, most) = KNOWN_FROM;
        let needed = (self.deviation() / KNOWN_WITHIN).powi(2).clamp(least, most);
        let wanted = key(batch.max(1), drafted);
        let mut cells = self.cells.iter().zip(self.doubts());
        let found = cells.find(|((key, _), _)| **key == wanted);
        found.map_or(0.0, |((_, cell), doubt)| {
            1.0 / (doubt / (KNOWN_WITHIN * KNOWN_WITHIN) + needed / cell.counted())
        })
    }

    /// How much less is known of each cell than of the best-known one, as a variance.
    fn doubts(&self) -> Vec<f64> {
        let of = |cell: &Cell| (cell.cost, cell.batch * self.context);
        self.beliefs.doubts(self.cells.values().map(of))
    }

    /// Deviation of what is known of a cost by one sample.
    fn deviation(&self) -> f64 {
        SAMPLE_DEVIATION * self.beliefs.spread()
    }

    /// Most rows whose cost is known, or can be guessed at, for a batch: a few for each sequence to begin with.
    pub(super) fn reach(&self, batch: usize) -> usize {
        let batch = batch.max(1);
        let row = bucket(batch);
        let seen = self.cells.range((row, 0)..(row + 1, 0)).next_back();
        let seen = seen.map_or(0, |(&(_, drafted), _)| drafted);
        REACH * seen.max(FIRST_ROWS + batch / 2)
    }

    /// When something was last seen at this very place.
    pub(super) fn latest(&self, batch: usize, drafted: usize) -> Duration {
        let cell = self.cells.get(&key(batch.max(1), drafted));
        cell.map_or(Duration::ZERO, |cell| cell.latest)
    }

    /// Seconds at tempo 1 and context 0.
    fn still(&self, batch: usize, drafted: usize) -> f64 {
        let seconds = if self.table.covers(batch, drafted) {
            self.table.at(batch, drafted)
        } else {
            self.plane.at(batch as f64, drafted as f64)
        };
        seconds.max(LEAST_SECONDS)
    }

    fn refresh(&mut self) {
        self.unseen = 0;
        let noise = (self.deviation() / DIFFERENCE).powi(2).max(LEAST_NOISE);
        let doubt =
            |cell: &Cell, doubt: f64| doubt / (DIFFERENCE * DIFFERENCE) + noise / cell.counted();
        let doubts = self.cells.values().zip(self.doubts());
        let doubts: Vec<f64> = doubts.map(|(cell, by)| doubt(cell, by)).collect();
        let points: Vec<Point> = self
            .cells
            .values()
            .zip(&doubts)
            .map(|(cell, doubt)| Point {
                batch: cell.batch,
                drafted: cell.drafted,
                seconds: self.beliefs.value(cell.cost).max(LEAST_SECONDS),
                weight: noise / doubt,
            })
            .collect();
        self.plane = Plane::fit(&self.with_far_ones(&points), self.prior);
        let plane = self.plane;
        // The batches that were seen, and one above: in between is interpolated.
        let mut batches: Vec<usize> = self.cells.keys().map(|&(batch, _)| batch).collect();
        batches.extend([1, 2 * batches.last().copied().unwrap_or(1)]);
        batches.sort_unstable();
        batches.dedup();
        let deepest = self.cells.keys().map(|&(_, drafted)| drafted).max();
        let drafted = grid(2 * deepest.unwrap_or(0) + 1);
        let corrections: Vec<Correction> = points
            .iter()
            .zip(doubts)
            .map(|(point, doubt)| Correction::new(point, &plane, doubt))
            .collect();
        self.table = Table::new(batches, drafted, |b, d| {
            corrected(&plane, &corrections, b, d)
        });
    }

    /// The measured points, and for every batch of which only small drafts were measured what the prior makes of large
    /// ones. A few rows say little about many: where rows are computed in groups the first one more costs as much as
    /// the seven behind it, and a plane through it would forbid all.
    fn with_far_ones(&self, points: &[Point]) -> Vec<Point> {
        let unit = Plane::unit(self.prior);
        let mut all = points.to_vec();
        for plain in points.iter().filter(|point| point.drafted == 0.0) {
            let drafted = FAR * plain.batch;
            let batch = plain.batch;
            let ratio = unit.at(batch, drafted) / unit.at(batch, 0.0);
            all.push(Point {
                batch,
                drafted,
                seconds: plain.seconds * ratio,
                weight: FAR_WEIGHT,
            });
        }
        all
    }
}

/// What a cell says about the plane, and where: with the logarithms taken once, and not for every place of the table.
struct Correction {
    batch: f64,
    rows: f64,
    /// What it counts less by.
    doubt: f64,
    factor: f64,
}

impl Correction {
    fn new(point: &Point, plane: &Plane, doubt: f64) -> Self {
        let there = plane.at(point.batch, point.drafted).max(LEAST_SECONDS);
        Self {
            batch: point.batch.log2() / BATCH_SCALE,
            rows: (point.batch + point.drafted).log2() / ROWS_SCALE,
            doubt,
            factor: (point.seconds / there).ln(),
        }
    }
}

/// The plane times what the cells around say about it, and the evidence for that.
fn corrected(plane: &Plane, cells: &[Correction], batch: usize, drafted: usize) -> (f64, f64) {
    let (b, d) = (batch as f64, drafted as f64);
    let base = plane.at(b, d).max(LEAST_SECONDS);
    let (across, along) = (b.log2() / BATCH_SCALE, (b + d).log2() / ROWS_SCALE);
    let (mut sum, mut weight) = (0.0, 1.0 / (PLANE_DISTANCE * PLANE_DISTANCE));
    for cell in cells {
        let (across, along) = (cell.batch - across, cell.rows - along);
        let counts = 1.0 / (cell.doubt + across * across + along * along);
        sum += counts * cell.factor;
        weight += counts;
    }
    (base * (sum / weight).exp(), weight)
}

/// The cell of a step. Those of one sequence are exact: where rows are computed in groups, one more or less decides, and
/// it has no others to share them with.
fn key(batch: usize, drafted: usize) -> (usize, usize) {
    if batch == 1 && drafted <= MAX_DEPTH {
        (batch, drafted)
    } else {
        (bucket(batch), bucket(drafted))
    }
}

/// Exact up to 8, then four to an octave.
fn bucket(x: usize) -> usize {
    if x <= 8 {
        return x;
    }
    let step = 1usize << (x.ilog2() - 2);
    x.div_ceil(step) * step
}

/// Numbers of drafted tokens from 0 to at least `last`: all that one sequence can draft, then buckets.
fn grid(last: usize) -> Vec<usize> {
    let mut grid = vec![0];
    let mut at = 0;
    while at < last {
        at = if at < MAX_DEPTH {
            at + 1
        } else {
            bucket(at + 1)
        };
        grid.push(at);
    }
    grid
}

#[cfg(test)]
mod tests;
