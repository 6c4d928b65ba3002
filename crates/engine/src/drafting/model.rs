//! Drafts by a small model.
//!
//! It has keys and values of its own under the target's block numbers, so one block table serves both and
//! its memory is bounded with the target's. What it has computed is known in two ways: a running
//! sequence counts its own positions, and every full block is marked with the name of the content that
//! was computed for it. A name stands for all tokens from the start, so a mark stays true whoever held
//! the block since: when a block comes out of the prefix cache its mark tells whether the small model was
//! there too, and whatever it missed is computed when somebody wants a draft.

use std::collections::HashSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use foldhash::{HashMap, HashMapExt};
use model::{BLOCK_TOKENS, Batch, Logits};
use speculation::{Confidence, DrafterKind, MAX_DEPTH, Source, Worth};

use super::drafter::{Decoding, DraftTime, Drafter, Offer, StopRule, Wanted};
use crate::blocks::BlockHash;
use crate::executor::Executor;
use crate::sampling::Scratch;
use crate::scheduler::SeqId;

/// Positions that are computed along with the first pass of a draft. After an accepted draft two are missing, after
/// a lookup as many as it had right; a pass of their own would cost more than these rows do. More would make the
/// pass look slower than passes are.
const ALONG_THE_WAY: usize = 12;

/// The small model and what it has computed.
pub(super) struct DraftModel {
    executor: Box<dyn Executor>,
    /// By block: the content that was computed for it.
    marks: Vec<Option<BlockHash>>,
    progress: HashMap<SeqId, Progress>,
    /// Most positions that are caught up in one step.
    catch_up_rows: usize,
    /// Scores that have a name in the vocabulary.
    known: usize,
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
    hope: Hope,
}

/// What is to be expected of a draft so far.
#[derive(Debug, Clone, Copy)]
enum Hope {
    /// Nobody asks: it gets as long as planned.
    Any,
    /// All of its `tokens` are accepted with the chance `survival`, and one more with `next` times that.
    Judged {
        tokens: usize,
        survival: f64,
        next: f64,
    },
    /// It has ended.
    Ended,
}

impl Hope {
    /// Whether one more token is worth a pass of `sequences`.
    fn goes_on(self, worth: &Worth, sequences: usize) -> bool {
        match self {
            Self::Any => true,
            Self::Judged {
                tokens,
                survival,
                next,
            } => worth.goes_on(tokens, survival, next, sequences),
            Self::Ended => false,
        }
    }
}

impl Drafter for DraftModel {
    fn kind(&self) -> DrafterKind {
        DrafterKind::Model
    }

    fn offer(&mut self, sequence: &Decoding<'_>) -> Option<Offer> {
        if sequence.tokens.len() + sequence.max_depth > self.executor.context_length() {
            return None;
        }
        let computed = self.find_marks(sequence);
        Some(Offer {
            source: Source::Model,
            length: MAX_DEPTH,
            behind: sequence.tokens.len().saturating_sub(1 + computed),
        })
    }

    /// All sequences go through each pass together. Those who must first be caught up with, or whose blocks
    /// another one is catching up with, may go without a draft.
    fn draft(
        &mut self,
        wanted: &mut [Wanted<'_>],
        stop: &StopRule<'_>,
    ) -> Result<DraftTime, String> {
        let began = Instant::now();
        let tokens = self.catch_up(wanted)?;
        let caught_up = Instant::now();
        let mut time = DraftTime {
            caught_up: tokens,
            catching_up: caught_up - began,
            ..DraftTime::default()
        };
        let mut pass = self.first_pass(wanted);
        time.read_along = pass.iter().map(|rows| rows.positions.len() - 1).sum();
        let mut reached = vec![false; wanted.len()];
        while !pass.is_empty() {
            self.run(wanted, &mut pass, true)?;
            time.count += 1;
            time.rows += pass.len();
            for (row, rows) in pass.iter_mut().enumerate() {
                if let Some(reached) = reached.get_mut(rows.wanted) {
                    *reached = true;
                }
                if let Some(one) = wanted.get_mut(rows.wanted) {
                    rows.hope = self.guess(one, row, rows.hope, stop);
                }
            }
            let together = pass.len();
            pass.retain_mut(|rows| {
                let next = rows.positions.end;
                rows.positions = next..next + 1;
                let more = |one: &Wanted<'_>| one.intent.draft.len() < one.intent.depth;
                rows.hope.goes_on(&stop.worth, together)
                    && wanted.get(rows.wanted).is_some_and(more)
            });
        }
        for (one, _) in wanted
            .iter_mut()
            .zip(reached)
            .filter(|(_, reached)| !reached)
        {
            one.intent.give_up();
        }
        time.passes = caught_up.elapsed();
        Ok(time)
    }

    fn verified(&mut self, id: SeqId, tokens: usize) {
        if let Some(progress) = self.progress.get_mut(&id) {
            progress.computed = progress.computed.min(tokens);
        }
    }

    fn preempted(&mut self, id: SeqId) {
        self.forget(id);
    }

    fn forget(&mut self, id: SeqId) {
        self.progress.remove(&id);
    }

    fn forget_all(&mut self) {
        self.progress.clear();
    }
}

impl DraftModel {
    /// `blocks` are those of the target's cache, and `known` its tokens with a name.
    pub(super) fn new(
        executor: Box<dyn Executor>,
        blocks: usize,
        catch_up_rows: usize,
        known: usize,
    ) -> Self {
        Self {
            executor,
            marks: vec![None; blocks],
            progress: HashMap::new(),
            catch_up_rows,
            known,
            batch: Batch::default(),
            logits: Logits::default(),
            scratch: Scratch::default(),
        }
    }

    /// All for whom nothing or little is missing.
    fn first_pass(&self, wanted: &[Wanted<'_>]) -> Vec<Rows> {
        let ready = wanted.iter().enumerate().filter_map(|(index, one)| {
            let missing = self.progress(one.intent.id).computed..one.tokens.len();
            (missing.len() <= ALONG_THE_WAY).then_some(Rows {
                wanted: index,
                positions: missing,
                hope: Hope::Any,
            })
        });
        ready.collect()
    }

    /// Adds one token to a draft, from a row of the scores, if it is worth its row of the verification.
    fn guess(&mut self, one: &mut Wanted<'_>, row: usize, hope: Hope, stop: &StopRule<'_>) -> Hope {
        let intent = &mut *one.intent;
        let scores = self.logits.row_mut(row);
        let ahead = intent.draft.len();
        let (known, scratch) = (self.known, &mut self.scratch);
        let Some(guess) = one.sampler.guess(scores, ahead, known, scratch) else {
            return Hope::Ended;
        };
        let mut after = Hope::Any;
        if !stop.worth.is_nothing() {
            let confidence = guess.confidence(scores, known);
            if !intent.probes {
                after = match judge(hope, ahead, confidence, stop) {
                    Hope::Ended => {
                        intent.skipped = Some(confidence);
                        return Hope::Ended;
                    }
                    judged => judged,
                };
            }
            // A probe is not ended by what the drafter thinks of itself, and shows what that is worth.
            intent.confidences.push(confidence);
        }
        intent.draft.push(guess.token);
        intent.odds.extend(guess.odds);
        if one.sampler.ends().contains(&guess.token) {
            // It was not the drafter that gave up: behind the end of an answer there is nothing to draft.
            intent.depth = intent.draft.len();
            return Hope::Ended;
        }
        after
    }

    fn progress(&self, id: SeqId) -> Progress {
        self.progress.get(&id).copied().unwrap_or_default()
    }

    /// Takes over what was computed for the same content before, by whoever; says how much is computed now.
    fn find_marks(&mut self, one: &Decoding<'_>) -> usize {
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
        progress.computed
    }

    /// Computes what is missing in front of the last token, within a budget for the step; says how many tokens it was.
    fn catch_up(&mut self, wanted: &[Wanted<'_>]) -> Result<usize, String> {
        let mut left = self.catch_up_rows;
        let mut pass = Vec::new();
        for (index, one) in wanted.iter().enumerate() {
            let computed = self.progress(one.intent.id).computed;
            let missing = one.tokens.len() - 1 - computed;
            let rows = missing.min(left);
            if missing >= ALONG_THE_WAY && rows > 0 {
                left -= rows;
                pass.push(Rows {
                    wanted: index,
                    positions: computed..computed + rows,
                    hope: Hope::Ended,
                });
            }
        }
        self.run(wanted, &mut pass, false)?;
        Ok(pass.iter().map(|rows| rows.positions.len()).sum())
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
            let tokens = one.tokens.iter().chain(&one.intent.draft).copied();
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
            let progress = progress.entry(one.intent.id).or_default();
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

/// What is to be expected of a draft with one more token behind its `ahead`, of this confidence; it has ended before that
/// if the token is not worth its row.
fn judge(hope: Hope, ahead: usize, confidence: Confidence, stop: &StopRule<'_>) -> Hope {
    let before = match hope {
        Hope::Judged { survival, .. } => survival,
        Hope::Any | Hope::Ended => 1.0,
    };
    let survival = before * stop.calibration.chance(confidence);
    let next = stop.calibration.usual(confidence);
    if !stop.worth.keeps(ahead, survival, next) {
        return Hope::Ended;
    }
    Hope::Judged {
        tokens: ahead + 1,
        survival,
        next,
    }
}
