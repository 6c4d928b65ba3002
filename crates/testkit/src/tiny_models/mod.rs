//! Tiny random Llama models, made in milliseconds and without Python, for tests of whatever stands
//! above the model: the engine, the gateway, the binary.
//!
//! The same [`TinyModel`] written as a GGUF file and as a Hugging Face folder holds the same weights
//! and the same vocabulary, so that both readers can be held against each other. Weights come from a
//! seed; two seeds give two models that disagree, which is what a test of drafting needs.

mod folder;
mod gguf_writer;
mod tokenizer;
mod weights;

use std::io;
use std::path::Path;

pub use gguf_writer::{GgufWriter, MetadataValue, TensorType};
pub use tokenizer::{BEGIN_OF_TURN, CHAT_TEMPLATE, END_OF_TEXT, END_OF_TURN};

/// How the matrices of a tiny model are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TinyFormat {
    /// Exact.
    F32,
    /// As most files are served; rounded from the same values as the exact one.
    Q8_0,
}

/// The recipe of a tiny random Llama.
#[derive(Debug, Clone, PartialEq)]
pub struct TinyModel {
    /// Where the weights come from.
    pub seed: u64,
    /// Width of the residual stream; a multiple of 32 for [`TinyFormat::Q8_0`].
    pub dim: usize,
    /// Number of layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width inside the feed-forward part; a multiple of 32 for [`TinyFormat::Q8_0`].
    pub feed_forward: usize,
    /// Longest sequence that the model claims to know.
    pub context: usize,
    /// Use the embedding as the output matrix.
    pub tied: bool,
    /// How matrices are stored in a GGUF file. Folders are always `F32`.
    pub format: TinyFormat,
}

impl Default for TinyModel {
    fn default() -> Self {
        Self {
            seed: 1,
            dim: 64,
            layers: 2,
            heads: 4,
            kv_heads: 2,
            feed_forward: 128,
            context: 2048,
            tied: false,
            format: TinyFormat::F32,
        }
    }
}

impl TinyModel {
    /// The model as the bytes of a GGUF file.
    pub fn gguf_bytes(&self) -> Vec<u8> {
        gguf_writer::tiny_gguf(self)
    }

    /// Writes the model as a GGUF file.
    pub fn write_gguf(&self, path: &Path) -> io::Result<()> {
        std::fs::write(path, self.gguf_bytes())
    }

    /// Writes the model as a Hugging Face folder, which is made if it does not exist.
    pub fn write_folder(&self, folder: &Path) -> io::Result<()> {
        folder::write(self, folder)
    }

    /// Number of tokens; the same for every recipe.
    pub fn vocab_size(&self) -> usize {
        tokenizer::Vocabulary::new().tokens.len()
    }

    /// Values of one head.
    pub fn head_dim(&self) -> usize {
        self.dim / self.heads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
        let model = TinyModel::default();
        assert_eq!(model.gguf_bytes(), model.gguf_bytes());
        let other = TinyModel {
            seed: 2,
            ..TinyModel::default()
        };
        assert_ne!(model.gguf_bytes(), other.gguf_bytes());
    }

    #[test]
    fn a_folder_holds_what_a_reader_looks_for() {
        let folder = tempfile::tempdir().unwrap();
        TinyModel::default().write_folder(folder.path()).unwrap();
        for name in [
            "config.json",
            "generation_config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
        ] {
            assert!(folder.path().join(name).is_file(), "{name}");
        }
    }
}
