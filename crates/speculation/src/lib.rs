//! Speculation as a control loop: what to draft, how deep, and which drafts become text.
//!
//! Pure: no I/O, no threads, no clock and no randomness of its own. Time comes in as a [`Duration`] since
//! any fixed moment, randomness as a [`PositionKey`], and decisions go out as values.
//!
//! | question | answered by |
//! |---|---|
//! | which drafted tokens become text? | [`verify`] |
//! | how likely are drafts to be accepted? | [`Acceptance`] |
//! | how far can a drafter be believed about itself? | [`Calibration`] |
//! | when is its draft long enough? | [`Worth`] |
//! | what does a step cost? | [`Costs`] |
//! | what did this text say the last time it got here? | [`ngram`] |
//! | who drafts what, and how deep? | [`law`]: `goodput`, `threshold`, `fixed:K` |
//! | is a drafter of any use for these texts? | [`Controller::low_acceptance`] |
//! | does the law keep its promises? | [`simulate`] |
//!
//! # A step, seen from the engine
//! ```
//! use std::time::Duration;
//! use forespeak_speculation::ngram::SuffixIndex;
//! use forespeak_speculation::verify::Verification;
//! use forespeak_speculation::{Candidate, Controller, Outcome, Step, Verified};
//!
//! let mut controller = Controller::default();
//! let mut index = SuffixIndex::default();
//! index.extend(&[1, 2, 3, 4, 1, 2]);
//!
//! // 1. Look up, then plan: lookups cost next to nothing, so all of them are made before anything is decided.
//! let lookup = index.propose(8);
//! let candidate = Candidate {
//!     id: 7,
//!     context: 6,
//!     max_depth: 8,
//!     model: false,
//!     behind: 0,
//!     lookup: lookup.as_ref().map(|found| found.lookup()),
//! };
//! let now = Duration::from_millis(5);
//! let plan = controller.plan(now, &Step::decoding(&[candidate]));
//!
//! // 2. Draft as planned, run the target over the drafts, and verify row by row.
//! let depth = plan.drafts[0].depth;
//! let tokens = lookup.map(|found| found.tokens).unwrap_or_default();
//! let draft = &tokens[..depth.min(tokens.len())];
//! let mut walk = Verification::new(draft);
//! while let Some(row) = walk.row() {
//!     let chosen = [3, 9][row.min(1)]; // the target's own choice at this row
//!     index.extend(&[chosen]);
//!     walk.settle(chosen);
//! }
//!
//! // 3. Say what happened.
//! let verified = Verified {
//!     id: 7,
//!     source: plan.drafts[0].source,
//!     planned: depth,
//!     drafted: draft.len(),
//!     accepted: walk.accepted(),
//!     lookup: None, // or what was found, held against what came
//! };
//! controller.observe(now, &Outcome {
//!     drafts: &[verified],
//!     draft_rows: draft.len(),
//!     tokens: walk.accepted() + 1,
//!     context: 6,
//!     prefill_rows: 0,
//!     verify: Duration::from_millis(20),
//!     draft: Duration::ZERO,
//!     passes: 0,
//!     pass_rows: 0,
//!     catch_up: Duration::ZERO,
//!     caught_up: 0,
//!     read_along: 0,
//!     planning: Duration::ZERO,
//! });
//! println!("{}", plan.decision); // for the log, the metrics and the console
//! ```

mod acceptance;
mod confidence;
mod controller;
mod cost;
mod error;
pub mod law;
mod low_acceptance;
pub mod ngram;
mod random;
pub mod simulate;
mod source;
mod step;
pub mod verify;
mod worth;

#[cfg(doc)]
use std::time::Duration;

pub use acceptance::{Acceptance, MAX_DEPTH, Seen, Survival, Totals};
pub use confidence::{Calibration, Confidence};
pub use controller::Controller;
pub use cost::{Costs, StepShape};
pub use error::ParseError;
pub use law::{Decision, LawSpec, Reason};
pub use low_acceptance::{LOW_ACCEPTANCE, LowAcceptance};
pub use random::{Lane, PositionKey};
pub use source::{DrafterKind, Drafters, Source, Strength};
pub use step::{Candidate, Draft, Looked, Lookup, Outcome, Plan, Step, Verified};
pub use worth::Worth;
