//! An engine without arithmetic: acceptance and step times are drawn, everything else is the real thing.
//!
//! A [`World`] has a number of streams, each a run of sequences; a [`Text`] says how likely drafts are to be
//! accepted, a [`Machine`] what steps take and how noisy that is. [`World::run`] drives a
//! [`crate::Controller`] through it on a clock of its own and gives a [`Run`]: tokens, time, and how the depth
//! moved. Equal seeds give equal runs. [`Recorded`] does the same with texts that a model has really said.
//!
//! # Example
//! ```
//! use forespeak_speculation::simulate::{Machine, Text, World};
//! use forespeak_speculation::LawSpec;
//!
//! let world = World::steady(Machine::CPU, Text::PROSE, 1);
//! let off = world.run(LawSpec::Fixed(0), 20.0);
//! let goodput = world.run(LawSpec::Goodput, 20.0);
//! assert!(goodput.tokens_per_second() > 1.5 * off.tokens_per_second());
//! ```

mod engine;
mod machine;
mod noise;
mod recorded;
mod run;
mod text;
mod world;

pub use machine::Machine;
pub use noise::Noise;
pub use recorded::{Recorded, Telling};
pub use run::{Run, Sight};
pub use text::{Guesses, Stretches, Text};
pub use world::World;
