//! What each tensor is called in each kind of file, and what shape it must have.

use crate::config::ModelConfig;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    Embedding,
    Layer(usize, LayerPart),
    OutputNorm,
    Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LayerPart {
    AttentionNorm,
    Q,
    K,
    V,
    QBias,
    KBias,
    VBias,
    QNorm,
    KNorm,
    AttentionOutput,
    AttentionOutputBias,
    FeedForwardNorm,
    Gate,
    Up,
    Down,
}

impl LayerPart {
    pub(super) const ALL: [Self; 15] = [
        Self::AttentionNorm,
        Self::Q,
        Self::K,
        Self::V,
        Self::QBias,
        Self::KBias,
        Self::VBias,
        Self::QNorm,
        Self::KNorm,
        Self::AttentionOutput,
        Self::AttentionOutputBias,
        Self::FeedForwardNorm,
        Self::Gate,
        Self::Up,
        Self::Down,
    ];
}

/// Whose names and row order a checkpoint uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    HuggingFace,
    Gguf,
}

impl Name {
    /// Every tensor that a model of this shape may have.
    pub(super) fn all(config: &ModelConfig) -> impl Iterator<Item = Self> {
        let layers = (0..config.layers)
            .flat_map(|layer| LayerPart::ALL.map(|part| Self::Layer(layer, part)));
        [Self::Embedding, Self::OutputNorm, Self::Output]
            .into_iter()
            .chain(layers)
    }

    pub(super) fn text(self, naming: Naming) -> String {
        match (naming, self) {
            (Naming::HuggingFace, Self::Embedding) => "model.embed_tokens.weight".to_owned(),
            (Naming::HuggingFace, Self::OutputNorm) => "model.norm.weight".to_owned(),
            (Naming::HuggingFace, Self::Output) => "lm_head.weight".to_owned(),
            (Naming::HuggingFace, Self::Layer(layer, part)) => {
                format!("model.layers.{layer}.{}", hugging_face(part))
            }
            (Naming::Gguf, Self::Embedding) => "token_embd.weight".to_owned(),
            (Naming::Gguf, Self::OutputNorm) => "output_norm.weight".to_owned(),
            (Naming::Gguf, Self::Output) => "output.weight".to_owned(),
            (Naming::Gguf, Self::Layer(layer, part)) => format!("blk.{layer}.{}", gguf(part)),
        }
    }

    /// Outputs first.
    pub(super) fn shape(self, config: &ModelConfig) -> Vec<usize> {
        let (dim, q_dim, kv_dim) = (config.dim, config.q_dim(), config.kv_dim());
        match self {
            Self::Embedding | Self::Output => vec![config.vocab_size, dim],
            Self::OutputNorm => vec![dim],
            Self::Layer(_, part) => match part {
                LayerPart::AttentionNorm | LayerPart::FeedForwardNorm => vec![dim],
                LayerPart::Q => vec![q_dim, dim],
                LayerPart::K | LayerPart::V => vec![kv_dim, dim],
                LayerPart::QBias => vec![q_dim],
                LayerPart::KBias | LayerPart::VBias => vec![kv_dim],
                LayerPart::QNorm | LayerPart::KNorm => vec![config.head_dim],
                LayerPart::AttentionOutput => vec![dim, q_dim],
                LayerPart::AttentionOutputBias => vec![dim],
                LayerPart::Gate | LayerPart::Up => vec![config.feed_forward, dim],
                LayerPart::Down => vec![dim, config.feed_forward],
            },
        }
    }

    /// Whether rows belong to heads that are rotated by position.
    pub(super) fn is_rotated(self) -> bool {
        use LayerPart::{K, KBias, Q, QBias};
        matches!(self, Self::Layer(_, Q | K | QBias | KBias))
    }
}

fn hugging_face(part: LayerPart) -> &'static str {
    match part {
        LayerPart::AttentionNorm => "input_layernorm.weight",
        LayerPart::Q => "self_attn.q_proj.weight",
        LayerPart::K => "self_attn.k_proj.weight",
        LayerPart::V => "self_attn.v_proj.weight",
        LayerPart::QBias => "self_attn.q_proj.bias",
        LayerPart::KBias => "self_attn.k_proj.bias",
        LayerPart::VBias => "self_attn.v_proj.bias",
        LayerPart::QNorm => "self_attn.q_norm.weight",
        LayerPart::KNorm => "self_attn.k_norm.weight",
        LayerPart::AttentionOutput => "self_attn.o_proj.weight",
        LayerPart::AttentionOutputBias => "self_attn.o_proj.bias",
        LayerPart::FeedForwardNorm => "post_attention_layernorm.weight",
        LayerPart::Gate => "mlp.gate_proj.weight",
        LayerPart::Up => "mlp.up_proj.weight",
        LayerPart::Down => "mlp.down_proj.weight",
    }
}

fn gguf(part: LayerPart) -> &'static str {
    match part {
        LayerPart::AttentionNorm => "attn_norm.weight",
        LayerPart::Q => "attn_q.weight",
        LayerPart::K => "attn_k.weight",
        LayerPart::V => "attn_v.weight",
        LayerPart::QBias => "attn_q.bias",
        LayerPart::KBias => "attn_k.bias",
        LayerPart::VBias => "attn_v.bias",
        LayerPart::QNorm => "attn_q_norm.weight",
        LayerPart::KNorm => "attn_k_norm.weight",
        LayerPart::AttentionOutput => "attn_output.weight",
        LayerPart::AttentionOutputBias => "attn_output.bias",
        LayerPart::FeedForwardNorm => "ffn_norm.weight",
        LayerPart::Gate => "ffn_gate.weight",
        LayerPart::Up => "ffn_up.weight",
        LayerPart::Down => "ffn_down.weight",
    }
}
