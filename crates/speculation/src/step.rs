//! What goes into a decision about one step and what comes back from it: plain values.

use std::time::Duration;

use crate::law::{Decision, Reason};
use crate::source::{Source, Strength};
use crate::worth::Worth;

/// A sequence that decodes in the next step, and what could be drafted for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Names it.
    pub id: u64,
    /// Tokens in its cache.
    pub context: usize,
    /// Most tokens to draft: what its request allows, fewer than it may still generate, and for what its
    /// blocks have room.
    pub max_depth: usize,
    /// Whether the draft model can draft for it.
    pub model: bool,
    /// Tokens that the draft model would have to read before its first draft.
    pub behind: usize,
    /// What a lookup found.
    pub lookup: Option<Lookup>,
}

/// A draft that was found, without its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lookup {
    /// Tokens it has.
    pub length: usize,
    /// How well it matched.
    pub strength: Strength,
}

/// A step to be planned. What else it computes, rows of prompts, is the same whatever is drafted and no part of the plan: held
/// against the time of all of it, drafts would seem cheap.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// The sequences that decode.
    pub candidates: &'a [Candidate],
    /// Most rows that drafts may add.
    pub row_budget: usize,
}

impl<'a> Step<'a> {
    /// A step with room for whatever is planned.
    pub fn decoding(candidates: &'a [Candidate]) -> Self {
        Self {
            candidates,
            row_budget: usize::MAX,
        }
    }
}

/// What to draft for one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draft {
    /// The sequence.
    pub id: u64,
    /// Who drafts; of no meaning at depth 0.
    pub source: Source,
    /// Tokens to draft.
    pub depth: usize,
    /// Tokens that may be drafted by one who knows what each of them is worth and stops where it is not [`Plan::worth`]
    /// it: as many as `depth`, or more.
    pub room: usize,
    /// It is to find out what its tokens are worth: all of them are wanted, whatever the drafter thinks of them.
    pub probes: bool,
}

/// What to draft in a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// One entry for each candidate, in their order.
    pub drafts: Vec<Draft>,
    /// The decision behind it, to be shown.
    pub decision: Decision,
    /// What the draft model's tokens must be worth, each one, to be drafted and kept.
    pub worth: Worth,
    /// How long the law need not be asked again, nor told of steps: nothing is going to be drafted.
    pub pause: Duration,
}

impl Plan {
    /// A plan without drafts.
    pub(crate) fn plain(candidates: &[Candidate], reason: Reason) -> Self {
        let draft = |candidate: &Candidate| Draft {
            id: candidate.id,
            source: Source::Model,
            depth: 0,
            room: 0,
            probes: false,
        };
        Self {
            drafts: candidates.iter().map(draft).collect(),
            decision: Decision::of(&[], 1.0, reason),
            worth: Worth::default(),
            pause: Duration::ZERO,
        }
    }
}

/// What became of one sequence's draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// The sequence.
    pub id: u64,
    /// Who drafted.
    pub source: Source,
    /// Tokens that were planned: more than were drafted where the drafter found no more worth it.
    pub planned: usize,
    /// Tokens that were drafted and verified; 0 for a plain decoding step.
    pub drafted: usize,
    /// Tokens of these that were accepted.
    pub accepted: usize,
    /// What a lookup found, held against what the text then said, whoever drafted.
    pub lookup: Option<Looked>,
}

/// How far the text went along with what a lookup had found. It takes no draft to know: the tokens that came are there to
/// be compared, so that a lookup is judged in every step in which it finds something, for nothing. Behind a draft that
/// was right in all, the token after it is compared too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Looked {
    /// How well it matched.
    pub strength: Strength,
    /// Tokens compared: those that came in the step, as far as the lookup had any.
    pub compared: usize,
    /// Tokens of these that agree, from the first.
    pub agreed: usize,
}

impl Looked {
    /// Holds what was found against what came.
    pub fn compare(strength: Strength, found: &[u32], came: &[u32]) -> Self {
        let pairs = found.iter().zip(came);
        Self {
            strength,
            compared: pairs.len(),
            agreed: pairs.take_while(|(found, came)| found == came).count(),
        }
    }
}

/// What a step was and took.
#[derive(Debug, Clone, Copy)]
pub struct Outcome<'a> {
    /// One entry for each sequence that decoded, with or without a draft.
    pub drafts: &'a [Verified],
    /// Rows of drafts in the step: those behind the end of an answer, which were not verified, took their time, too.
    pub draft_rows: usize,
    /// Tokens that came of it. An answer that ends with a token of its draft has none behind that.
    pub tokens: usize,
    /// Tokens in the caches of all of them.
    pub context: usize,
    /// Rows of prompts read in the same step.
    pub prefill_rows: usize,
    /// Time of everything but the draft model.
    pub verify: Duration,
    /// Time of the draft model.
    pub draft: Duration,
    /// Passes that took it.
    pub passes: usize,
    /// Rows in all of them.
    pub pass_rows: usize,
    /// Time the draft model took besides, to read what it had missed.
    pub catch_up: Duration,
    /// Tokens that it read.
    pub caught_up: usize,
    /// Tokens that it read along with its passes.
    pub read_along: usize,
    /// Time that was spent on deciding what to draft, and on learning from the step before: what a step takes longer about which
    /// nobody is asked. No part of the others.
    pub planning: Duration,
}
