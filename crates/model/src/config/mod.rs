//! What a model is made of, whichever file said so.

mod gguf;
mod huggingface;
mod rope;

use std::fmt;

use crate::ModelError;

pub(crate) use gguf::read as from_gguf;
pub(crate) use huggingface::{GenerationConfig, read as from_huggingface};
pub use rope::{Rope, RopeScaling};

/// Longest context that is believed. As long as the longest of real models.
pub const MAX_CONTEXT: usize = 1 << 20;
/// Well above any model of these families; a config beyond it is broken.
const MAX_DIMENSION: usize = 1 << 20;
const MAX_LAYERS: usize = 1 << 10;
const MAX_HEAD_DIM: usize = 1 << 9;

/// The families whose arithmetic is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// Llama 1 to 3.x, and whatever was trained in its shape.
    Llama,
    /// Llama's arithmetic; early ones attend to a sliding window.
    Mistral,
    /// Llama's arithmetic with biases on queries, keys and values.
    Qwen2,
    /// Llama's arithmetic with norms on every head of queries and keys.
    Qwen3,
}

impl Architecture {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Llama, Self::Mistral, Self::Qwen2, Self::Qwen3];

    /// The class name in `config.json`.
    pub fn class_name(self) -> &'static str {
        match self {
            Self::Llama => "LlamaForCausalLM",
            Self::Mistral => "MistralForCausalLM",
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
        }
    }

    pub(crate) fn names() -> String {
        Self::ALL.map(|known| known.to_string()).join(", ")
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        })
    }
}

/// The shape of a model. Every field was checked: nothing is zero, heads divide evenly.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// Its family.
    pub architecture: Architecture,
    /// Scores in a row of logits. A tokenizer may know fewer tokens.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub dim: usize,
    /// Number of layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; they divide the query heads.
    pub kv_heads: usize,
    /// Values of one head; even.
    pub head_dim: usize,
    /// Width inside the feed-forward part.
    pub feed_forward: usize,
    /// Longest sequence the model was made for, at most [`MAX_CONTEXT`].
    pub context_length: usize,
    /// Keeps norms away from dividing by zero.
    pub norm_eps: f32,
    /// How positions turn queries and keys.
    pub rope: Rope,
    /// Whether the output matrix is the embedding.
    pub tied: bool,
    /// Whether queries, keys and values must have biases.
    pub qkv_bias: bool,
    /// Whether the attention's output must have a bias.
    pub output_bias: bool,
    /// Whether every head of queries and keys is normed.
    pub qk_norm: bool,
    /// For each layer, how many of the last positions it attends to; `None` is all.
    pub windows: Vec<Option<usize>>,
}

impl ModelConfig {
    /// Values of all key heads together (and of all value heads).
    pub fn kv_dim(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Values of all query heads together. Not always [`ModelConfig::dim`].
    pub fn q_dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Weights that a token is multiplied with in the layers: half the operations it costs to read it.
    pub fn weights_a_token(&self) -> usize {
        let attention = 2 * self.dim * (self.q_dim() + self.kv_dim());
        let feed_forward = 3 * self.dim * self.feed_forward;
        self.layers * (attention + feed_forward)
    }

    fn checked(self, file: &str) -> Result<Self, ModelError> {
        let error = |reason: String| Err(ModelError::malformed(file, reason));
        for (name, value, most) in [
            ("vocabulary size", self.vocab_size, MAX_DIMENSION),
            ("hidden size", self.dim, MAX_DIMENSION),
            ("number of layers", self.layers, MAX_LAYERS),
            ("number of heads", self.heads, MAX_DIMENSION),
            ("number of key/value heads", self.kv_heads, MAX_DIMENSION),
            ("head size", self.head_dim, MAX_HEAD_DIM),
            ("feed-forward size", self.feed_forward, MAX_DIMENSION),
            ("context length", self.context_length, MAX_CONTEXT),
        ] {
            if value == 0 || value > most {
                return error(format!("{name} is {value}, expected 1 to {most}"));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let (heads, kv_heads) = (self.heads, self.kv_heads);
            return error(format!(
                "{heads} heads cannot share {kv_heads} key/value heads evenly"
            ));
        }
        if !self.head_dim.is_multiple_of(2) {
            return error(format!("head size {} is odd", self.head_dim));
        }
        if self.heads * self.head_dim > MAX_DIMENSION {
            return error(format!(
                "{} heads of {} are too many",
                self.heads, self.head_dim
            ));
        }
        if !(self.norm_eps.is_finite() && self.norm_eps >= 0.0) {
            return error(format!("norm epsilon is {}", self.norm_eps));
        }
        if self.windows.contains(&Some(0)) {
            return error("sliding window is 0".to_owned());
        }
        self.rope.checked(file)?;
        Ok(self)
    }
}
