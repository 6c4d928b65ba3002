//! Laws of depth: who drafts what, and how deep, in the next step.
//!
//! | law | decides by | for |
//! |---|---|---|
//! | [`Goodput`] | expected tokens over expected time | the default |
//! | [`Threshold`] | acceptance against fixed bounds | the baseline the project started from |
//! | [`Fixed`] | nothing | measurements |
//!
//! Acceptance alone is the wrong signal: at one and the same acceptance speculation pays at a small batch and
//! costs at a large one, because verifying rows is free only while the step waits for memory.

mod allocate;
mod allowance;
mod arm;
mod choose;
mod decision;
mod explore;
mod fixed;
mod goodput;
mod hold;
mod plain_steps;
mod probe;
mod quiet;
mod spec;
mod step_costs;
mod threshold;
mod turns;

use std::fmt::Debug;
use std::time::Duration;

pub use allocate::{Allocation, allocate};
pub use arm::Arm;
pub use decision::{Decision, Reason};
pub use fixed::Fixed;
pub use goodput::Goodput;
pub use spec::LawSpec;
pub use step_costs::StepCosts;
pub use threshold::Threshold;

use crate::acceptance::Acceptance;
use crate::cost::Costs;
use crate::step::{Outcome, Plan, Step};

/// What a law may know.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// Of drafts.
    pub acceptance: Acceptance,
    /// Of steps.
    pub costs: Costs,
}

/// A law of depth.
pub trait Law: Debug + Send {
    /// Decides about the next step.
    fn plan(&mut self, now: Duration, step: &Step<'_>, evidence: &Evidence) -> Plan;

    /// Sees how a step went, after the evidence has learnt from it.
    fn observe(&mut self, now: Duration, outcome: &Outcome<'_>);

    /// Forgets a sequence that ended.
    fn forget(&mut self, sequence: u64);
}
