//! Configs, weights (safetensors, GGUF), tokenizer, chat template, the forward pass.

mod batch;

pub use batch::{BLOCK_TOKENS, Batch, Logits, Span};
