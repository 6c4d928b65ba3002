//! Drafts by a small model.
//!
//! It has keys and values of its own under the target's block numbers, so one block table serves both and
//! its memory is bounded with the target's. What it has computed is known in two ways: a running
//! sequence counts its own positions, and every full block is marked with the name of the content that
//! was computed for it. A name stands for all tokens from the start, so a mark stays true whoever held
//! the block since: when a block comes out of the prefix cache its mark tells whether the small model was
//! there too, and whatever it missed is computed when somebody wants a draft.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use model::{BLOCK_TOKENS, Batch, Logits};
use speculation::{Calibration, Confidence, Worth};

use crate::blocks::BlockHash;
use crate::executor::Executor;
use crate::sampling::{Sampler, Scratch};
use crate::scheduler::SeqId;

/// Positions that are computed along with the first pass of a draft. After an accepted draft two are missing, after
/// a lookup as many as it had right; a pass of their own would cost more than these rows do. More would make the
/// pass look slower than passes are.
const ALONG_THE_WAY: usize = 12;

/// A sequence that wants a draft.
pub(crate) struct Wanted<'a> {
    pub(crate) id: SeqId,
    /// Prompt and answer.
    pub(crate) tokens: &'a [u32],
    /// Blocks with room for `tokens` and the draft.
    pub(crate) table: &'a [u32],
    /// Names of the full blocks of `tokens`.
    pub(crate) names: &'a [BlockHash],
    /// Tokens to draft.
    pub(crate) depth: usize,
    /// Chooses as the target will choose.
    pub(crate) sampler: &'a Sampler,
    /// The draft, when it is made: at most `depth` tokens, fewer if more are not worth it.
    pub(crate) draft: Vec<u32>,
    /// The drafter's confidence in each of them.
    pub(crate) confidences: Vec<Confidence>,
    /// Chance that all of them are accepted.
    pub(crate) survival: f64,
    /// The token behind them was drafted and not kept: how confident the drafter was of it.
    pub(crate) skipped: Option<Confidence>,
    /// Whether a draft was made at all, if only to find that none is worth it.
    pub(crate) drafted: bool,
}

impl Wanted<'_> {
    /// Takes a guess if it is worth its row. Says whether it was taken.
    fn take(&mut self, token: u32, confidence: Option<Confidence>, stop: &StopRule<'_>) -> bool {
        let Some(confidence) = confidence else {
            self.draft.push(token);
            return true;
        };
        let survival = self.survival * stop.calibration.chance(confidence);
        if !stop.worth.keeps(survival) {
            self.skipped = Some(confidence);
            return false;
        }
        self.survival = survival;
        self.confidences.push(confidence);
        self.draft.push(token);
        true
    }
}

/// When drafts are long enough.
pub(crate) struct StopRule<'a> {
    pub(crate) worth: Worth,
    pub(crate) calibration: &'a Calibration,
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
}

/// The small model and what it has computed.
pub(super) struct DraftModel {
    executor: Box<dyn Executor>,
    /// By block: the content that was computed for it.
    marks: Vec<Option<BlockHash>>,
    progress: HashMap<SeqId, Progress>,
    /// Most positions that are caught up in one step.
    catch_up_rows: usize,
    batch: Batch,
    logits: Logits,
    scratch: Scratch,
}

/// How far a running sequence is.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// Positions computed, of which those behind the sequence's end are guesses.
    computed: usize,
    /// Blocks from the start that carry their mark.
    marked: usize,
}

/// Rows of one sequence in a pass.
struct Rows {
    wanted: usize,
    positions: Range<usize>,
}

impl DraftModel {
    pub(super) fn new(executor: Box<dyn Executor>, blocks: usize, catch_up_rows: usize) -> Self {
        Self {
            executor,
            marks: vec![None; blocks],
            progress: HashMap::new(),
            catch_up_rows,
            batch: Batch::default(),
            logits: Logits::default(),
            scratch: Scratch::default(),
        }
    }

    /// Longest sequence that it can continue.
    pub(super) fn context_length(&self) -> usize {
        self.executor.context_length()
    }

    /// Drafts for all of `wanted` together, and says how long it took. Those who must first be
    /// caught up with, or whose blocks another one is catching up with, may go without a draft.
    pub(super) fn draft(
        &mut self,
        wanted: &mut [Wanted<'_>],
        known: usize,
        stop: &StopRule<'_>,
    ) -> Result<DraftTime, String> {
        let began = Instant::now();
        for one in wanted.iter() {
            self.find_marks(one);
        }
        self.catch_up(wanted)?;
        let caught_up = Instant::now();
        let mut pass: Vec<Rows> = wanted
            .iter()
            .enumerate()
            .filter_map(|(index, one)| {
                let computed = self.progress(one.id).computed;
                let missing = computed..one.tokens.len();
                (one.depth > 0 && missing.len() <= ALONG_THE_WAY).then_some(Rows {
                    wanted: index,
                    positions: missing,
                })
            })
            .collect();
        let judges = !stop.worth.is_nothing();
        let usual = stop.calibration.usual();
        let (mut count, mut in_passes) = (0, 0);
        while !pass.is_empty() {
            self.run(wanted, &mut pass, true)?;
            count += 1;
            in_passes += pass.len();
            for (row, rows) in pass.iter().enumerate() {
                let Some(one) = wanted.get_mut(rows.wanted) else {
                    continue;
                };
                let scores = self.logits.row_mut(row);
                let ahead = one.draft.len();
                one.drafted = true;
                let guess = one.sampler.guess(scores, ahead, known, &mut self.scratch);
                let Some(token) = guess else {
                    continue;
                };
                let lead = judges.then(|| Sampler::lead(scores, known, token));
                one.take(token, lead.map(Confidence::of_lead), stop);
            }
            let together = pass.len();
            pass.retain_mut(|rows| {
                let Some(one) = wanted.get(rows.wanted) else {
                    return false;
                };
                let next = rows.positions.end;
                rows.positions = next..next + 1;
                // A model without a guess, or with one that was not taken, ends its draft here.
                let taken = one.tokens.len() + one.draft.len() == next + 1;
                taken
                    && one.draft.len() < one.depth
                    && stop.worth.goes_on(one.survival, usual, together)
            });
        }
        Ok(DraftTime {
            passes: caught_up.elapsed(),
            catching_up: caught_up - began,
            count,
            rows: in_passes,
        })
    }

    /// A draft was verified: of what was computed, the first `tokens` positions hold.
    pub(super) fn keep(&mut self, id: SeqId, tokens: usize) {
        if let Some(progress) = self.progress.get_mut(&id) {
            progress.computed = progress.computed.min(tokens);
        }
    }

    /// The sequence ended or lost its blocks.
    pub(super) fn forget(&mut self, id: SeqId) {
        self.progress.remove(&id);
    }

    /// All sequences are gone.
    pub(super) fn forget_all(&mut self) {
        self.progress.clear();
    }

    fn progress(&self, id: SeqId) -> Progress {
        self.progress.get(&id).copied().unwrap_or_default()
    }

    /// Takes over what was computed for the same content before, by whoever.
    fn find_marks(&mut self, one: &Wanted<'_>) {
        let progress = self.progress.entry(one.id).or_default();
        let blocks = one.table.iter().zip(one.names).skip(progress.marked);
        let more = blocks
            .take_while(|&(&block, name)| {
                self.marks.get(block as usize).and_then(Option::as_ref) == Some(name)
            })
            .count();
        progress.marked += more;
        // The scores behind the last token are wanted, so it is computed in any case.
        let found = progress.marked * BLOCK_TOKENS;
        progress.computed = progress.computed.max(found).min(one.tokens.len() - 1);
    }

    /// Computes what is missing in front of the last token, within a budget for the step.
    fn catch_up(&mut self, wanted: &[Wanted<'_>]) -> Result<(), String> {
        let mut left = self.catch_up_rows;
        let mut pass = Vec::new();
        for (index, one) in wanted.iter().enumerate() {
            let computed = self.progress(one.id).computed;
            let missing = one.tokens.len() - 1 - computed;
            let rows = missing.min(left);
            if missing >= ALONG_THE_WAY && rows > 0 {
                left -= rows;
                pass.push(Rows {
                    wanted: index,
                    positions: computed..computed + rows,
                });
            }
        }
        self.run(wanted, &mut pass, false)
    }

    /// Computes rows, of each sequence the scores behind the last one if they are wanted. Sequences that
    /// share a block which one of them writes cannot be in the same pass: the later ones leave it.
    fn run(
        &mut self,
        wanted: &[Wanted<'_>],
        pass: &mut Vec<Rows>,
        scores: bool,
    ) -> Result<(), String> {
        self.batch.clear();
        let mut written: HashSet<u32> = HashSet::new();
        let Self {
            batch,
            marks,
            progress,
            ..
        } = self;
        pass.retain(|rows| {
            let Some(one) = wanted.get(rows.wanted) else {
                return false;
            };
            let Range { start, end } = rows.positions;
            let Some(touched) = one.table.get(..end.div_ceil(BLOCK_TOKENS)) else {
                return false;
            };
            if !written.is_empty() && touched.iter().any(|block| written.contains(block)) {
                return false;
            }
            let first = start / BLOCK_TOKENS;
            for (index, &block) in touched.iter().enumerate().skip(first) {
                // Only full blocks are ever shared.
                if index < one.names.len() {
                    written.insert(block);
                }
                if let Some(mark) = marks.get_mut(block as usize) {
                    *mark = None;
                }
            }
            let tokens = one.tokens.iter().chain(&one.draft).copied();
            let tokens: Vec<u32> = tokens.skip(start).take(end - start).collect();
            let range = batch.push(&tokens, start, one.table);
            if scores {
                batch.want(range.end - 1);
            }
            true
        });
        if pass.is_empty() {
            return Ok(());
        }
        let (executor, logits) = (&mut self.executor, &mut self.logits);
        match catch_unwind(AssertUnwindSafe(|| executor.execute(batch, logits))) {
            Ok(result) => result.map_err(|error| error.to_string())?,
            Err(_) => return Err("the draft model panicked".to_owned()),
        }
        for rows in pass.iter() {
            let Some(one) = wanted.get(rows.wanted) else {
                continue;
            };
            let progress = progress.entry(one.id).or_default();
            progress.computed = rows.positions.end;
            progress.marked = progress.marked.min(rows.positions.start / BLOCK_TOKENS);
            let full = progress.computed.min(one.tokens.len()) / BLOCK_TOKENS;
            let blocks = one.table.iter().zip(one.names).take(full);
            for (&block, &name) in blocks.skip(progress.marked) {
                if let Some(mark) = marks.get_mut(block as usize) {
                    *mark = Some(name);
                }
            }
            progress.marked = progress.marked.max(full.min(one.names.len()));
        }
        Ok(())
    }
}
