//! What came of a simulation.

/// What the law did at one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sight {
    /// When, in seconds.
    pub at: f64,
    /// Mean depth planned, probes included.
    pub depth: f64,
    /// Tokens that came out.
    pub tokens: usize,
    /// Expected speed-up.
    pub speedup: f64,
    /// Whether it was a probe.
    pub probe: bool,
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// Tokens in all.
    pub tokens: usize,
    /// Seconds in all, as if every step had taken its mean time: comparing laws by luck helps nobody.
    pub seconds: f64,
    /// Step by step.
    pub sights: Vec<Sight>,
}

impl Run {
    /// Tokens per second.
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// How often the depth changed, probes left out.
    pub fn changes(&self) -> usize {
        let planned: Vec<f64> = self
            .sights
            .iter()
            .filter(|sight| !sight.probe)
            .map(|sight| sight.depth)
            .collect();
        planned
            .windows(2)
            .filter(|pair| pair.first() != pair.last())
            .count()
    }

    /// Mean depth between two times, probes left out.
    pub fn depth_between(&self, from: f64, to: f64) -> f64 {
        let depths: Vec<f64> = self
            .sights
            .iter()
            .filter(|sight| !sight.probe && (from..to).contains(&sight.at))
            .map(|sight| sight.depth)
            .collect();
        depths.iter().sum::<f64>() / depths.len().max(1) as f64
    }

    /// Tokens per second between two times.
    pub fn rate_between(&self, from: f64, to: f64) -> f64 {
        let within = self.sights.iter().filter(|s| (from..to).contains(&s.at));
        within.map(|sight| sight.tokens).sum::<usize>() as f64 / (to - from)
    }
}
