//! The embedded engine: blocks, prefix cache, scheduler, step loop, sampler.
//!
//! One thread owns all state. [`Engine`] is its door: [`Engine::submit`] gives a [`Generation`], out of
//! which [`Update`]s come; dropping the generation cancels it.

mod blocks;
mod config;
mod cpu;
mod door;
mod engine;
mod error;
mod executor;
mod generation;
mod metrics;
mod request;
mod sampling;
mod scheduler;
mod text;
mod vocabulary;
mod worker;

pub use blocks::{BlockHash, KvEvent, KvEventBatch};
pub use config::EngineConfig;
pub use cpu::{CpuExecutor, blocks_for_memory};
pub use engine::{Engine, Stepper};
pub use error::{RefusalKind, StartError, SubmitError};
pub use executor::{ExecuteError, Executor};
pub use generation::Generation;
pub use metrics::Metrics;
pub use request::{
    FinishReason, Format, Priority, Request, Sampling, StopMatch, Token, TokenLogprob, Update,
};
pub use vocabulary::Vocabulary;
