//! Weights: found in the files, checked against the config, packed for the kernels.

mod checkpoint;
mod embedding;
mod names;
mod packer;

use kernels::{Compute, Matrix};

use crate::ModelError;
use crate::config::ModelConfig;

pub(crate) use checkpoint::{Checkpoint, SourceFile};
pub(crate) use embedding::Embedding;
use names::{LayerPart, Name};
use packer::Packer;

/// How float weights are made smaller while they are packed. Weights that a file stores quantized
/// stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quantize {
    /// 8.5 bits a weight.
    Q8_0,
    /// 4.5 bits a weight; the output matrix, where rounding hurts most, gets [`Quantize::Q8_0`].
    Q4K,
}

impl std::str::FromStr for Quantize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "q8_0" => Ok(Self::Q8_0),
            "q4_k" => Ok(Self::Q4K),
            _ => Err(format!("`{text}` is not known; use q8_0 or q4_k")),
        }
    }
}

/// How far packing has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// Bytes of weights that are packed.
    pub done: usize,
    /// Bytes of all weights.
    pub total: usize,
    /// The tensor that was packed last.
    pub tensor: &'a str,
}

/// What the forward pass multiplies with.
pub(crate) struct Weights {
    pub(crate) embedding: Embedding,
    pub(crate) layers: Vec<Layer>,
    pub(crate) output_norm: Vec<f32>,
    pub(crate) output: Matrix,
}

pub(crate) struct Layer {
    pub(crate) attention_norm: Vec<f32>,
    pub(crate) q: Linear,
    pub(crate) k: Linear,
    pub(crate) v: Linear,
    pub(crate) q_norm: Option<Vec<f32>>,
    pub(crate) k_norm: Option<Vec<f32>>,
    pub(crate) attention_output: Linear,
    pub(crate) feed_forward_norm: Vec<f32>,
    pub(crate) gate: Matrix,
    pub(crate) up: Matrix,
    pub(crate) down: Matrix,
}

pub(crate) struct Linear {
    pub(crate) matrix: Matrix,
    pub(crate) bias: Option<Vec<f32>>,
}

impl Weights {
    /// Packs every tensor that `config` asks for. Shapes are checked first, so that a wrong file is
    /// refused at once and not after minutes of packing.
    pub(crate) fn pack(
        checkpoint: &Checkpoint,
        config: &ModelConfig,
        compute: &Compute,
        quantize: Option<Quantize>,
        progress: &dyn Fn(Progress<'_>),
    ) -> Result<Self, ModelError> {
        let packer = Packer::new(checkpoint, config, compute, quantize, progress)?;
        // The largest matrix first: while it is packed its file pages are in memory, too.
        let output = packer.matrix(if config.tied {
            Name::Embedding
        } else {
            Name::Output
        })?;
        let layers = (0..config.layers)
            .map(|layer| Layer::pack(&packer, config, layer))
            .collect::<Result<Vec<Layer>, ModelError>>()?;
        Ok(Self {
            embedding: Embedding::new(checkpoint.require(Name::Embedding)?.clone()),
            layers,
            output_norm: packer.vector(Name::OutputNorm)?,
            output,
        })
    }

    /// Memory that the packed matrices take.
    pub(crate) fn bytes(&self) -> usize {
        let layers: usize = self.layers.iter().map(Layer::bytes).sum();
        layers + self.output.bytes()
    }
}

impl Layer {
    fn pack(packer: &Packer<'_>, config: &ModelConfig, layer: usize) -> Result<Self, ModelError> {
        let name = |part| Name::Layer(layer, part);
        let linear = |weight, bias, must_have_bias: bool| {
            let bias = if must_have_bias {
                Some(packer.vector(name(bias))?)
            } else {
                packer.optional_vector(name(bias))?
            };
            let matrix = packer.matrix(name(weight))?;
            Ok::<_, ModelError>(Linear { matrix, bias })
        };
        let head_norm = |part| match config.qk_norm {
            true => packer.vector(name(part)).map(Some),
            false => Ok(None),
        };
        Ok(Self {
            attention_norm: packer.vector(name(LayerPart::AttentionNorm))?,
            q: linear(LayerPart::Q, LayerPart::QBias, config.qkv_bias)?,
            k: linear(LayerPart::K, LayerPart::KBias, config.qkv_bias)?,
            v: linear(LayerPart::V, LayerPart::VBias, config.qkv_bias)?,
            q_norm: head_norm(LayerPart::QNorm)?,
            k_norm: head_norm(LayerPart::KNorm)?,
            attention_output: linear(
                LayerPart::AttentionOutput,
                LayerPart::AttentionOutputBias,
                config.output_bias,
            )?,
            feed_forward_norm: packer.vector(name(LayerPart::FeedForwardNorm))?,
            gate: packer.matrix(name(LayerPart::Gate))?,
            up: packer.matrix(name(LayerPart::Up))?,
            down: packer.matrix(name(LayerPart::Down))?,
        })
    }

    fn bytes(&self) -> usize {
        let linears = [&self.q, &self.k, &self.v, &self.attention_output];
        let matrices = [&self.gate, &self.up, &self.down];
        let linears = linears.into_iter().map(|linear| &linear.matrix);
        linears.chain(matrices).map(Matrix::bytes).sum()
    }
}
