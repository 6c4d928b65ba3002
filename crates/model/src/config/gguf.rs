//! Reads a model's shape from GGUF metadata.

use crate::ModelError;
use crate::gguf::Gguf;

use super::{Architecture, MAX_CONTEXT, ModelConfig, Rope, RopeScaling};

const DEFAULT_THETA: f32 = 10_000.0;
const EMBEDDING: &str = "token_embd.weight";
const OUTPUT: &str = "output.weight";
const ROPE_DIVISORS: &str = "rope_freqs.weight";

/// Reads the config of a GGUF file. Mistral's files call themselves `llama`.
pub(crate) fn read(gguf: &Gguf<'_>) -> Result<ModelConfig, ModelError> {
    let file = gguf.file();
    let name = gguf
        .text("general.architecture")?
        .ok_or_else(|| ModelError::malformed(file, "metadata `general.architecture` is missing"))?;
    let architecture = match name {
        "llama" => Architecture::Llama,
        "qwen2" => Architecture::Qwen2,
        "qwen3" => Architecture::Qwen3,
        other => {
            return Err(ModelError::UnknownArchitecture {
                file: file.to_owned(),
                found: other.to_owned(),
            });
        }
    };
    let keys = Keys { gguf, prefix: name };
    let dim = keys.required("embedding_length")?;
    let heads = keys.required("attention.head_count")?;
    let head_dim = match keys.count("attention.key_length")? {
        Some(head_dim) => head_dim,
        None => dim.checked_div(heads).unwrap_or_default(),
    };
    keys.refuse_unless("attention.value_length", head_dim)?;
    keys.refuse_unless("rope.dimension_count", head_dim)?;
    keys.refuse_unless("expert_count", 0)?;
    let layers = keys.required("block_count")?;
    let window = keys
        .count("attention.sliding_window")?
        .filter(|window| *window > 0);
    let config = ModelConfig {
        architecture,
        vocab_size: vocab_size(gguf)?,
        dim,
        layers,
        heads,
        kv_heads: keys.count("attention.head_count_kv")?.unwrap_or(heads),
        head_dim,
        feed_forward: keys.required("feed_forward_length")?,
        context_length: keys.required("context_length")?.min(MAX_CONTEXT),
        norm_eps: keys.required_number("attention.layer_norm_rms_epsilon")?,
        rope: Rope {
            theta: keys.number("rope.freq_base")?.unwrap_or(DEFAULT_THETA),
            scaling: scaling(&keys, head_dim)?,
        },
        tied: gguf.tensor(OUTPUT).is_none(),
        qkv_bias: architecture == Architecture::Qwen2,
        output_bias: false,
        qk_norm: architecture == Architecture::Qwen3,
        windows: vec![window; layers.min(super::MAX_LAYERS)],
    };
    config.checked(file)
}

/// Keys of one architecture.
struct Keys<'g, 'a> {
    gguf: &'g Gguf<'a>,
    prefix: &'g str,
}

impl Keys<'_, '_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    fn count(&self, name: &str) -> Result<Option<usize>, ModelError> {
        self.gguf.count(&self.key(name))
    }

    fn number(&self, name: &str) -> Result<Option<f32>, ModelError> {
        self.gguf.number(&self.key(name))
    }

    fn required(&self, name: &str) -> Result<usize, ModelError> {
        self.count(name)?.ok_or_else(|| self.missing(name))
    }

    fn required_number(&self, name: &str) -> Result<f32, ModelError> {
        self.number(name)?.ok_or_else(|| self.missing(name))
    }

    fn missing(&self, name: &str) -> ModelError {
        let key = self.key(name);
        ModelError::malformed(self.gguf.file(), format!("metadata `{key}` is missing"))
    }

    fn refuse_unless(&self, name: &str, expected: usize) -> Result<(), ModelError> {
        match self.count(name)? {
            Some(found) if found != expected => Err(ModelError::unsupported(
                self.gguf.file(),
                format!("`{}` of {found}", self.key(name)),
                format!("it must be {expected}"),
            )),
            _ => Ok(()),
        }
    }
}

fn vocab_size(gguf: &Gguf<'_>) -> Result<usize, ModelError> {
    let embedding = gguf
        .tensor(EMBEDDING)
        .ok_or_else(|| ModelError::MissingTensor {
            file: gguf.file().to_owned(),
            tensor: EMBEDDING.to_owned(),
        })?;
    match embedding.shape[..] {
        [rows, _] => Ok(rows),
        _ => Err(ModelError::tensor(
            gguf.file(),
            EMBEDDING,
            "is not a matrix",
        )),
    }
}

fn scaling(keys: &Keys<'_, '_>, head_dim: usize) -> Result<RopeScaling, ModelError> {
    let file = keys.gguf.file();
    if let Some(tensor) = keys.gguf.tensor(ROPE_DIVISORS) {
        if tensor.format != kernels::Format::F32 || tensor.shape[..] != [head_dim / 2] {
            let reason = format!("is not {} values of F32", head_dim / 2);
            return Err(ModelError::tensor(file, ROPE_DIVISORS, reason));
        }
        let mut divisors = vec![0.0; head_dim / 2];
        kernels::dequantize(tensor.format, keys.gguf.data(tensor), &mut divisors);
        return Ok(RopeScaling::Divisors(divisors));
    }
    let kind = keys.gguf.text(&keys.key("rope.scaling.type"))?;
    match kind {
        None | Some("none") => {
            // Files from before the typed keys say only by how much.
            Ok(match keys.number("rope.scale_linear")? {
                Some(factor) if factor != 1.0 => RopeScaling::Linear { factor },
                _ => RopeScaling::Default,
            })
        }
        Some("linear") => Ok(RopeScaling::Linear {
            factor: keys.required_number("rope.scaling.factor")?,
        }),
        Some(other) => Err(ModelError::unsupported(
            file,
            format!("rope scaling `{other}`"),
            "none, linear and the `rope_freqs.weight` tensor are",
        )),
    }
}
