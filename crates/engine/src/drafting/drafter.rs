//! Whoever guesses what comes next, and what passes between them and the step loop.

use std::ops::AddAssign;
use std::time::Duration;

use speculation::verify::Distribution;
use speculation::{Calibration, Confidence, Draft, DrafterKind, Drafters, Looked, Source, Worth};

use crate::blocks::BlockHash;
use crate::sampling::Sampler;
use crate::scheduler::{Loan, SeqId};

/// Guesses what sequences will say next.
///
/// The way of a step: everybody who may draft for a sequence says what it could do ([`Drafter::offer`]); the
/// controller takes one offer for each sequence, or none; blocks are lent; each drafter makes its drafts for all
/// sequences together ([`Drafter::draft`]); and when the target has spoken it hears how much of it holds
/// ([`Drafter::verified`]). `auto` is nobody of its own: it is everybody being asked.
pub(super) trait Drafter: Send {
    /// Whose drafts it makes.
    fn kind(&self) -> DrafterKind;

    /// What it could draft for a sequence. Asked before every draft, and often without one, so it must cost next to nothing.
    fn offer(&mut self, sequence: &Decoding<'_>) -> Option<Offer>;

    /// Makes the drafts that were wanted of it, each of at most the intended depth, and says how long it took.
    /// A sequence that it does not get round to is left with a depth of 0. After an error it is not asked again.
    fn draft(
        &mut self,
        wanted: &mut [Wanted<'_>],
        stop: &StopRule<'_>,
    ) -> Result<DraftTime, String>;

    /// A step ended: of all that was taken for the sequence's text, the first `tokens` tokens hold.
    fn verified(&mut self, _id: SeqId, _tokens: usize) {}

    /// These tokens came: how they compare with what it had offered, if it can tell without having drafted.
    fn judged(&mut self, _id: SeqId, _came: &[u32]) -> Option<Looked> {
        None
    }

    /// A sequence lost its blocks.
    fn preempted(&mut self, _id: SeqId) {}

    /// A sequence of this cache salt ended with this answer.
    fn learn(&mut self, _salt: Option<&str>, _answer: &[u32]) {}

    /// A sequence is gone.
    fn forget(&mut self, id: SeqId);

    /// All sequences are gone.
    fn forget_all(&mut self);
}

/// A decoding sequence, before it is decided what to draft.
pub(crate) struct Decoding<'a> {
    pub(crate) id: SeqId,
    pub(crate) salt: Option<&'a str>,
    /// Prompt and answer.
    pub(crate) tokens: &'a [u32],
    /// Its blocks.
    pub(crate) table: &'a [u32],
    /// Names of the full ones.
    pub(crate) names: &'a [BlockHash],
    /// Most tokens to draft.
    pub(crate) max_depth: usize,
    /// Who may draft for it, as far as its request has a say.
    pub(crate) drafters: Drafters,
    /// Tokens that end its answer.
    pub(crate) ends: &'a [u32],
}

/// What a drafter could do for a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offer {
    /// Its kind of draft.
    pub(super) source: Source,
    /// Most tokens that it would have.
    pub(super) length: usize,
    /// Tokens of the sequence that it would have to read first, as far as it knows.
    pub(super) behind: usize,
}

/// What the controller decided for one sequence, and what came of it.
#[derive(Debug)]
pub(crate) struct Intent {
    pub(crate) id: SeqId,
    pub(crate) source: Source,
    /// Most tokens to draft.
    pub(crate) depth: usize,
    /// All of them are wanted, whatever the drafter thinks of them.
    pub(crate) probes: bool,
    /// Blocks for the draft's keys and values, once they are lent.
    pub(crate) loan: Option<Loan>,
    /// The draft, once it is made. Shorter than `depth` where more is not worth it.
    pub(crate) draft: Vec<u32>,
    /// What each token was drawn from; empty if they were not drawn.
    pub(crate) odds: Vec<Distribution>,
    /// The drafter's confidence in each token, if it has any and somebody asked.
    pub(crate) confidences: Vec<Confidence>,
    /// The token behind them was drafted and not kept: how confident the drafter was of it.
    pub(crate) skipped: Option<Confidence>,
}

impl Intent {
    pub(super) fn new(id: SeqId, draft: &Draft) -> Self {
        Self {
            id,
            source: draft.source,
            depth: draft.room,
            probes: draft.probes,
            loan: None,
            draft: Vec::new(),
            odds: Vec::new(),
            confidences: Vec::new(),
            skipped: None,
        }
    }

    /// Nothing is drafted after all, and nothing of it counts.
    pub(super) fn give_up(&mut self) {
        self.depth = 0;
        self.draft.clear();
        self.odds.clear();
        self.confidences.clear();
        self.skipped = None;
    }
}

/// A sequence that wants a draft.
pub(crate) struct Wanted<'a> {
    /// Prompt and answer.
    pub(crate) tokens: &'a [u32],
    /// Blocks with room for `tokens` and the draft.
    pub(crate) table: &'a [u32],
    /// Names of the full blocks of `tokens`.
    pub(crate) names: &'a [BlockHash],
    /// Chooses as the target will choose.
    pub(crate) sampler: &'a Sampler,
    /// How deep, and where the draft goes.
    pub(crate) intent: &'a mut Intent,
}

/// When drafts are long enough.
pub(super) struct StopRule<'a> {
    pub(super) worth: Worth,
    pub(super) calibration: &'a Calibration,
}

/// What drafting took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DraftTime {
    /// The passes that made the drafts.
    pub(crate) passes: Duration,
    /// Computing what was missed before: paid once for a prompt, however deep the drafts.
    pub(crate) catching_up: Duration,
    /// How many passes there were.
    pub(crate) count: usize,
    /// Sequences in all of them.
    pub(crate) rows: usize,
    /// Tokens that were read while catching up.
    pub(crate) caught_up: usize,
    /// Tokens that were read along with the first pass, beyond the last of each sequence.
    pub(crate) read_along: usize,
}

impl AddAssign for DraftTime {
    fn add_assign(&mut self, other: Self) {
        self.passes += other.passes;
        self.catching_up += other.catching_up;
        self.count += other.count;
        self.rows += other.rows;
        self.caught_up += other.caught_up;
        self.read_along += other.read_along;
    }
}
