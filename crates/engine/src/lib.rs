//! The embedded engine: blocks, prefix cache, scheduler, step loop, sampler.

mod executor;
mod request;

pub use executor::{ExecuteError, Executor};
pub use request::{
    FinishReason, Format, Priority, Request, Sampling, StopMatch, Token, TokenLogprob, Update,
};
