//! What a row allows, and with which probability.

/// A token that can be chosen and its weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weighted {
    /// The token.
    pub id: u32,
    /// Its probability but for a common factor; positive and finite.
    pub weight: f32,
}

/// A processed row: the tokens that can be chosen, ascending, with their weights.
///
/// Weights need not sum to 1. Impossible tokens (weight 0, negative or not a number) are left out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Distribution {
    entries: Vec<Weighted>,
    total: f64,
}

impl Distribution {
    /// From one weight for each token of the vocabulary.
    pub fn from_weights(weights: &[f32]) -> Self {
        Self::from_entries(
            (0..)
                .zip(weights)
                .map(|(id, &weight)| Weighted { id, weight }),
        )
    }

    /// From what top-k, top-p or a mask left, ids ascending.
    pub fn from_entries(entries: impl IntoIterator<Item = Weighted>) -> Self {
        let entries: Vec<Weighted> = entries
            .into_iter()
            .filter(|e| e.weight > 0.0 && e.weight.is_finite())
            .collect();
        debug_assert!(entries.is_sorted_by(|a, b| a.id < b.id), "ids ascend");
        let total = entries.iter().map(|e| f64::from(e.weight)).sum();
        Self { entries, total }
    }

    /// The tokens that can be chosen.
    pub fn entries(&self) -> &[Weighted] {
        &self.entries
    }

    /// Sum of the weights.
    pub fn total(&self) -> f64 {
        self.total
    }

    /// All of it on one token.
    pub fn point(id: u32) -> Self {
        Self::from_entries([Weighted { id, weight: 1.0 }])
    }

    /// Probability of the likeliest token.
    pub fn highest(&self) -> f64 {
        let highest = self.entries.iter().map(|e| e.weight).fold(0.0, f32::max);
        f64::from(highest) / self.total.max(f64::MIN_POSITIVE)
    }

    /// Probability of a token.
    pub fn probability(&self, id: u32) -> f64 {
        self.entries
            .binary_search_by_key(&id, |e| e.id)
            .ok()
            .and_then(|at| self.entries.get(at))
            .map_or(0.0, |e| f64::from(e.weight) / self.total)
    }
}
