//! Configs, weights (safetensors, GGUF), tokenizer, chat template, the forward pass.
//!
//! [`Model::load`] turns a path into a [`LoadedModel`]; [`Model::forward`] runs one [`Batch`] of rows
//! against a KV cache. Everything read from files is foreign: readers check before they allocate, and
//! what is wrong becomes a [`ModelError`] that names file and tensor.

mod batch;
mod config;
mod error;
mod forward;
pub mod gguf;
mod language;
mod load;
mod place;
pub mod safetensors;
mod template;
mod tokenizer;
mod weights;

pub use batch::{BLOCK_TOKENS, Batch, Logits, Span};
pub use config::{Architecture, MAX_CONTEXT, ModelConfig, Rope, RopeScaling};
pub use error::ModelError;
pub use forward::{Model, Workspace};
pub use kernels::{Compute, KvCache, KvShape, KvType, Tier};
pub use language::Language;
pub use load::{LoadOptions, LoadedModel, ModelSource};
pub use place::Place;
pub use template::{ChatTemplate, Conversation};
pub use tokenizer::{Specials, Tokenizer};
pub use weights::{Progress, Quantize};
