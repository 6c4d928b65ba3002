//! Adds up the samples of a page by what they measure.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::names::{self, Dialect, QUANTITIES, Quantity, labels, sleep_states};
use super::observation::{CacheFacts, MAX_DRAFT_POSITIONS, SleepState};
use crate::exposition::{Labels, Sample};

/// Where a full name leads.
type Book = HashMap<&'static str, (Quantity, u8)>;

static BOOKS: LazyLock<[(Dialect, Book); 3]> = LazyLock::new(|| {
    Dialect::ALL.map(|dialect| {
        let book = dialect
            .names()
            .iter()
            .map(|name| (name.text, (name.quantity, name.rank)))
            .collect();
        (dialect, book)
    })
});

/// What was printed under the best name of a quantity.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    rank: u8,
    samples: u32,
    sum: f64,
    max: f64,
}

/// Sums by quantity. Only finite, non-negative values count: everything we read is a count, a ratio or
/// a time, and a NaN would spoil every score it enters.
#[derive(Debug, Default)]
pub(super) struct Tally {
    cells: [Cell; QUANTITIES],
    pub(super) accepted_at_position: Vec<f64>,
    pub(super) cache: CacheFacts,
    pub(super) sleep: Option<SleepState>,
    pub(super) process_start: Option<f64>,
    pub(super) dialect: Option<Dialect>,
}

impl Tally {
    pub(super) fn add(&mut self, sample: &Sample<'_>) {
        if !sample.value.is_finite() || sample.value < 0.0 {
            return;
        }
        if sample.name == names::PROCESS_START {
            self.process_start = Some(sample.value);
            return;
        }
        let Some((dialect, quantity, rank)) = look_up(sample.name) else {
            return;
        };
        if *self.dialect.get_or_insert(dialect) != dialect || repeats_rank_zero(&sample.labels) {
            return;
        }
        match quantity {
            Quantity::AcceptedAtPosition => self.add_position(sample),
            Quantity::CacheConfig => self.cache.add(&sample.labels),
            Quantity::SleepState => self.add_sleep_state(sample),
            _ => self.add_to_cell(quantity, rank, sample.value),
        }
    }

    pub(super) fn sum(&self, quantity: Quantity) -> Option<f64> {
        self.cell(quantity).map(|cell| cell.sum)
    }

    pub(super) fn mean(&self, quantity: Quantity) -> Option<f64> {
        self.cell(quantity)
            .map(|cell| cell.sum / f64::from(cell.samples))
    }

    pub(super) fn max(&self, quantity: Quantity) -> Option<f64> {
        self.cell(quantity).map(|cell| cell.max)
    }

    /// Ranks that print this quantity.
    pub(super) fn ranks(&self, quantity: Quantity) -> u32 {
        self.cell(quantity).map_or(0, |cell| cell.samples)
    }

    fn cell(&self, quantity: Quantity) -> Option<&Cell> {
        self.cells
            .get(quantity as usize)
            .filter(|cell| cell.samples > 0)
    }

    fn add_to_cell(&mut self, quantity: Quantity, rank: u8, value: f64) {
        let Some(cell) = self.cells.get_mut(quantity as usize) else {
            return;
        };
        if cell.samples > 0 && rank > cell.rank {
            return;
        }
        if cell.samples == 0 || rank < cell.rank {
            *cell = Cell {
                rank,
                ..Cell::default()
            };
        }
        cell.samples += 1;
        cell.sum += value;
        cell.max = cell.max.max(value);
    }

    fn add_position(&mut self, sample: &Sample<'_>) {
        let position = sample.labels.get(labels::POSITION);
        let Some(position) = position.and_then(|text| text.parse::<usize>().ok()) else {
            return;
        };
        if position >= MAX_DRAFT_POSITIONS {
            return;
        }
        if self.accepted_at_position.len() <= position {
            self.accepted_at_position.resize(position + 1, 0.0);
        }
        if let Some(accepted) = self.accepted_at_position.get_mut(position) {
            *accepted += sample.value;
        }
    }

    /// Of several ranks the soundest sleeper counts: a worker with one rank asleep cannot be used.
    fn add_sleep_state(&mut self, sample: &Sample<'_>) {
        if sample.value == 0.0 {
            return;
        }
        let state = match sample.labels.get(labels::SLEEP_STATE).as_deref() {
            Some(sleep_states::AWAKE) => SleepState::Awake,
            Some(sleep_states::WEIGHTS_OFFLOADED) => SleepState::WeightsOffloaded,
            Some(sleep_states::DISCARD_ALL) => SleepState::Discarded,
            _ => return,
        };
        self.sleep = self.sleep.max(Some(state));
    }
}

fn look_up(name: &str) -> Option<(Dialect, Quantity, u8)> {
    BOOKS.iter().find_map(|(dialect, book)| {
        let short = name.strip_prefix(dialect.prefix())?;
        let (quantity, rank) = book.get(short)?;
        Some((*dialect, *quantity, *rank))
    })
}

/// Tensor- and pipeline-parallel ranks share one cache and one queue; only the first one counts.
fn repeats_rank_zero(found: &Labels<'_>) -> bool {
    [labels::TP_RANK, labels::PP_RANK]
        .iter()
        .any(|label| found.get(label).is_some_and(|rank| rank != "0"))
}
