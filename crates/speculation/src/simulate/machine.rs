//! What steps take, and how unevenly.

use super::noise::Noise;

/// Costs of a machine, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// A step of one row.
    pub step: f64,
    /// Rows that ride along for [`Machine::free_row`] each, because the step waits for memory.
    pub free_rows: f64,
    /// Each of those, as a share of the step.
    pub free_row: f64,
    /// Each row beyond, as a share of the step.
    pub row: f64,
    /// Rows beyond the first so many are computed in groups of so many: one more costs as much as all of the next group.
    pub panel: usize,
    /// What each sequence beyond the first costs besides its row, as a share of the step: its attention, its choice.
    pub sequence: f64,
    /// A pass of the draft model over one sequence, as a share of the step.
    pub pass: f64,
    /// Reading one token that the draft model has missed, as a share of the step.
    pub read: f64,
    /// Each further sequence in a pass, as a share of the pass.
    pub pass_row: f64,
    /// What goes around a plan for one sequence, as a share of the step: looking up, deciding, learning.
    pub planning: f64,
    /// The same for each further sequence.
    pub planning_row: f64,
    /// Deviation of the logarithm of a step's time.
    pub jitter: f64,
    /// Chance that a step takes ten times as long.
    pub outliers: f64,
    /// Seconds after which a spell of slow steps begins or ends.
    pub spell: f64,
    /// What a step takes then, over what it takes else.
    pub slow: f64,
    /// Whether it is only memory that is slow then: steps wait for it, and rows are computed meanwhile.
    pub slow_memory: bool,
    /// How much longer the first plain step behind one with drafts takes, as a share of it: what drafts drove out of the
    /// processor's cache has to be read again.
    pub left_behind: f64,
}

/// What a row more costs where steps wait for memory, as a share of the step.
const RIDES_ALONG: f64 = 0.02;

/// Plain steps behind drafts until they are as any other.
const RECOVERY: usize = 5;

impl Machine {
    /// Our CPU engine with a small model: four rows cost what one costs, eight 1.3 times that.
    pub const CPU: Self = Self {
        step: 0.020,
        free_rows: 4.0,
        free_row: 0.015,
        row: 0.065,
        panel: 1,
        sequence: 0.0,
        pass: 0.12,
        read: 0.002,
        pass_row: 0.06,
        planning: 0.0,
        planning_row: 0.0,
        jitter: 0.05,
        outliers: 0.0,
        spell: f64::INFINITY,
        slow: 1.0,
        slow_memory: false,
        left_behind: 0.0,
    };

    /// The same on a machine that others use too.
    pub const BUSY_CPU: Self = Self {
        jitter: 0.25,
        outliers: 0.03,
        ..Self::CPU
    };

    /// vLLM on a CPU with a draft model, as measured: 5.5, 5.9, 8.0, 10.6, 12.8 ms at depths 0, 1, 2, 4, 6.
    pub const VLLM_CPU: Self = Self {
        step: 0.0055,
        free_rows: 2.0,
        free_row: 0.02,
        row: 0.12,
        panel: 1,
        sequence: 0.0,
        pass: 0.11,
        read: 0.002,
        pass_row: 0.1,
        planning: 0.0,
        planning_row: 0.0,
        jitter: 0.1,
        outliers: 0.01,
        spell: f64::INFINITY,
        slow: 1.0,
        slow_memory: false,
        left_behind: 0.0,
    };

    /// The bundled pair on two cores, as measured: steps of 0.43 ms out of the processor's cache, where every row
    /// costs, eight rows at a time. A token is read by the draft model in 12 microseconds, and a plan takes 26.
    pub const SMALL_MODEL: Self = Self {
        step: 0.000_43,
        free_rows: 1.0,
        free_row: 0.0,
        row: 0.27,
        panel: 8,
        sequence: 0.1,
        pass: 0.15,
        read: 0.028,
        pass_row: 0.3,
        planning: 0.06,
        planning_row: 0.008,
        jitter: 0.1,
        outliers: 0.01,
        spell: f64::INFINITY,
        slow: 1.0,
        slow_memory: false,
        left_behind: 0.0,
    };

    /// The same beside another tenant of the processor's cache, who comes and goes.
    pub const SMALL_MODEL_IN_SPELLS: Self = Self {
        spell: 0.9,
        slow: 1.35,
        ..Self::SMALL_MODEL
    };

    /// The same where target and draft model do not fit into the processor's cache together.
    pub const TIGHT_CACHE: Self = Self {
        left_behind: 0.16,
        ..Self::SMALL_MODEL
    };

    /// A model of 1.1 billion weights in eight bits on two cores, as measured: steps wait for memory, so that eight rows take a
    /// seventh more time than one, and every further one as much again.
    pub const LARGE_MODEL: Self = Self {
        free_rows: 8.0,
        free_row: 0.02,
        row: 0.14,
        jitter: 0.06,
        outliers: 0.005,
        ..Self::CPU
    };

    /// The same where memory is fast, so that rows cost from the fifth on, and in every second spell as slow as above.
    pub const LARGE_MODEL_IN_SPELLS: Self = Self {
        free_rows: 4.0,
        free_row: 0.03,
        spell: 6.0,
        slow: 1.5,
        slow_memory: true,
        ..Self::LARGE_MODEL
    };

    /// A kernel for which every row costs: speculation loses from a few streams on.
    pub const STEEP: Self = Self {
        free_rows: 1.0,
        row: 0.3,
        ..Self::CPU
    };

    /// Mean seconds of the target for `sequences` that drafted `drafted` tokens.
    pub fn verify(&self, sequences: usize, drafted: usize) -> f64 {
        let rows = sequences + drafted;
        let rows = if rows > self.panel {
            rows.next_multiple_of(self.panel.max(1))
        } else {
            rows
        };
        let rows = rows as f64;
        let free = rows.min(self.free_rows) - 1.0;
        let paid = (rows - self.free_rows).max(0.0);
        let others = sequences.saturating_sub(1) as f64;
        self.step * (1.0 + self.free_row * free + self.row * paid + self.sequence * others)
    }

    /// Mean seconds of one pass of the draft model.
    pub fn pass(&self, sequences: usize) -> f64 {
        if sequences == 0 {
            return 0.0;
        }
        self.step * self.pass * (1.0 + self.pass_row * (sequences - 1) as f64)
    }

    /// Mean seconds of the draft model to read what it has missed.
    pub fn read(&self, tokens: usize) -> f64 {
        self.step * self.read * tokens as f64
    }

    /// Seconds that go around a plan.
    pub fn plan(&self, sequences: usize) -> f64 {
        let others = sequences.saturating_sub(1) as f64;
        self.step * (self.planning + self.planning_row * others)
    }

    /// What [`Machine::verify`] says, at a moment.
    pub(super) fn verify_at(&self, at: f64, sequences: usize, drafted: usize) -> f64 {
        let usual = self.verify(sequences, drafted);
        if !self.slow_memory {
            return usual * self.tempo(at);
        }
        let waiting = self.verify(sequences, 0) * self.tempo(at);
        usual.max(waiting * (1.0 + RIDES_ALONG * drafted as f64))
    }

    /// A factor for the times of all steps at a moment.
    pub fn tempo(&self, at: f64) -> f64 {
        let slow = (at / self.spell) as u64 % 2 == 1;
        if slow { self.slow } else { 1.0 }
    }

    /// A factor for the time of a plain step, so many of them behind the last one with drafts.
    pub(super) fn recovering(&self, plain_before: usize) -> f64 {
        let left = RECOVERY.saturating_sub(plain_before) as f64 / RECOVERY as f64;
        1.0 + self.left_behind * left
    }

    /// A factor for one step's time.
    pub(super) fn unevenness(&self, noise: &mut Noise) -> f64 {
        let outlier = if noise.uniform() < self.outliers {
            10.0
        } else {
            1.0
        };
        outlier * (self.jitter * noise.normal()).exp()
    }
}
