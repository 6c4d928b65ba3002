//! The embedded engine: blocks, prefix cache, scheduler, step loop, sampler, drafters.
//!
//! One thread owns all state. [`Engine`] is its door: [`Engine::submit`] gives a [`Generation`], out of
//! which [`Update`]s come; dropping the generation cancels it.
//!
//! ```
//! use std::sync::Arc;
//! use forespeak_engine::{Engine, EngineConfig, Priority, Request, Sampling, Update};
//! use testkit::hash_lm::{HashLm, ToyVocabulary};
//!
//! let config = EngineConfig { num_blocks: 64, ..EngineConfig::default() };
//! let executor = Box::new(HashLm::new(config.num_blocks));
//! let engine = Engine::start(config, executor, Arc::new(ToyVocabulary))?;
//!
//! let mut generation = engine.submit(Request {
//!     id: "example".into(),
//!     prompt: vec![1, 2, 3],
//!     sampling: Sampling { max_tokens: Some(5), ignore_eos: true, ..Sampling::default() },
//!     priority: Priority::Normal,
//!     cache_salt: None,
//! })?;
//! let mut tokens = 0;
//! while let Some(update) = generation.blocking_recv() {
//!     if let Update::Delta { tokens: more, .. } = update {
//!         tokens += more.len();
//!     }
//! }
//! assert_eq!(tokens, 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The folders follow the data: a request comes through [`door`](Engine::submit), the `scheduler` plans a
//! step with the `blocks` that are there, `drafting` guesses ahead, the [`Executor`] computes it, `sampling`
//! chooses tokens, `text` makes them readable; `worker` is the loop around it. [`store`] keeps blocks beyond the executor's memory.

mod blocks;
mod config;
mod cpu;
mod door;
mod drafting;
mod engine;
mod error;
mod executor;
mod generation;
mod metrics;
mod request;
mod sampling;
mod scheduler;
pub mod store;
mod text;
mod vocabulary;
mod worker;

pub use blocks::{BlockHash, KvEvent, KvEventBatch};
pub use config::EngineConfig;
pub use cpu::{CpuExecutor, blocks_for_memory};
pub use drafting::{SpeculationConfig, SpeculationStatus};
pub use engine::{Engine, Stepper};
pub use error::{RefusalKind, StartError, SubmitError};
pub use executor::{ExecuteError, Executor, Executors};
pub use generation::Generation;
pub use metrics::Metrics;
pub use request::{
    DraftCounts, FinishReason, Format, Priority, Request, Sampling, StopMatch, Token, TokenLogprob,
    Update,
};
pub use speculation::{Decision, Drafters, LawSpec, MAX_DEPTH};
pub use vocabulary::Vocabulary;
